"""Kubeconfig files: what kubectl accepts is used, and what cannot be used is a sentence."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from epp.errors import ConfigError
from epp.kube.kubeconfig import files as reading_files
from epp.kube.kubeconfig.files import Kubeconfig, context, open_kubeconfig
from epp.kube.kubeconfig.identity import named_files, open_access
from epp.kube.kubeconfig.reader import read
from epp.ports.tls import self_signed

SERVER = "https://cluster.example:6443"
SECRET = "s3cret-t0ken"
V1 = "client.authentication.k8s.io/v1"


def config(user: Mapping[str, Any], *, name: str = "c", **cluster: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "llm"}}],
        "clusters": [{"name": name, "cluster": {"server": SERVER, **cluster}}],
        "users": [{"name": name, "user": dict(user)}],
    }


def written(folder: Path, content: object, name: str = "config") -> str:
    file = folder / name
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return str(file)


def plugin(folder: Path, script: str, **fields: Any) -> dict[str, Any]:
    """A user whose credential a shell script prints."""
    (folder / "plugin").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "plugin").chmod(0o700)
    return {"exec": {"apiVersion": V1, "command": "./plugin", "interactiveMode": "IfAvailable", **fields}}


def credential(**status: Any) -> str:
    return f"echo '{json.dumps({'apiVersion': V1, 'kind': 'ExecCredential', 'status': status})}'"


def in_minutes(minutes: float) -> str:
    return (datetime.now(UTC) + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def headers(access: Kubeconfig, *, renew: bool = False) -> Mapping[str, str]:
    return asyncio.run(access.headers(renew=renew))


def opened(*files: str, **limits: float) -> Kubeconfig:
    return asyncio.run(open_kubeconfig(files, **limits))


def refusal(folder: Path, file: str) -> str:
    """What is wrong with a kubeconfig, which is read in this process."""
    (folder / "temporary").mkdir(exist_ok=True)
    with pytest.raises(ConfigError) as refused:
        context(read([file], str(folder / "temporary"), credentials=True))
    assert SECRET not in str(refused.value)
    return str(refused.value)


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def test_a_token_its_server_and_its_namespace_are_used(tmp_path: Path) -> None:
    authority = base64.b64encode(self_signed()[0]).decode()
    access = opened(written(tmp_path, config({"token": SECRET}, **{"certificate-authority-data": authority})))
    assert (access.server, access.namespace, access.tls_name, access.proxy) == (SERVER, "llm", None, None)
    assert headers(access) == {"Authorization": f"Bearer {SECRET}"}
    context = access.tls()
    assert context is not None
    assert len(context.get_ca_certs()) == 1
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_paths_are_relative_to_the_file_that_has_them_and_the_first_file_wins(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    first = config({"token": "of-one"})
    second = config({"tokenFile": "token"}, name="d", **{"certificate-authority": "ca.crt"})
    second["contexts"].append({"name": "c", "context": {"cluster": "d", "user": "d"}})
    (tmp_path / "two" / "token").write_text("of-two")
    (tmp_path / "two" / "ca.crt").write_bytes(self_signed()[0])
    files = [written(tmp_path / "one", first), written(tmp_path / "two", second)]
    assert headers(opened(*files)) == {"Authorization": "Bearer of-one"}
    del first["current-context"]
    files[0] = written(tmp_path / "one", first)
    assert headers(opened(*files)) == {"Authorization": "Bearer of-two"}


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    access = opened(written(tmp_path, config({"tokenFile": "token"})))
    assert headers(access) == {"Authorization": "Bearer first"}
    headers(access, renew=True)
    assert access.runs == 1
    token.write_text("the second")
    assert headers(access) == {"Authorization": "Bearer the second"} or access.runs == 2


def test_a_client_certificate_is_loaded_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", None)
    certificate, key = (base64.b64encode(part).decode() for part in self_signed())
    access = opened(written(tmp_path, config({"client-certificate-data": certificate, "client-key-data": key})))
    assert headers(access) == {}
    assert access.tls() is not None
    assert list(temporary.iterdir()) == []


def test_a_plugins_token_is_kept_until_it_is_about_to_end(tmp_path: Path) -> None:
    script = f"echo x >> {tmp_path}/runs; " + credential(token="t", expirationTimestamp=in_minutes(30))
    file = written(tmp_path, config(plugin(tmp_path, script)))
    first = opened(file)
    assert not (tmp_path / "runs").exists()  # it runs for a request, not to find out about the cluster
    now, clock = Clock(), Clock()
    now.time = datetime.now(UTC).timestamp()
    access = Kubeconfig([file], first._reading, now=now, clock=clock)
    for _ in range(2):
        assert headers(access) == {"Authorization": "Bearer t"}
        clock.time += 3600
    assert access.runs == 1
    now.time += 30 * 60 - 30
    headers(access)
    assert access.runs == 2
    headers(access, renew=True)  # right after a run, the plugin would answer the same
    assert access.runs == 2
    clock.time += 11
    headers(access, renew=True)
    assert access.runs == 3
    assert (tmp_path / "runs").read_text().count("x") == 3


def test_requests_at_the_same_time_share_one_run_of_a_plugin(tmp_path: Path) -> None:
    async def work() -> None:
        access = await open_kubeconfig([written(tmp_path, config(plugin(tmp_path, credential(token="t"))))])
        await asyncio.gather(*(access.headers(renew=True) for _ in range(5)))
        assert access.runs == 1

    asyncio.run(work())


def test_a_plugin_has_no_terminal_and_an_empty_input(tmp_path: Path) -> None:
    script = f"""if (: < /dev/tty) 2>/dev/null; then exit 7; fi
read line && exit 8
echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info
{credential(token="t")}"""
    assert headers(opened(written(tmp_path, config(plugin(tmp_path, script))))) == {"Authorization": "Bearer t"}
    assert json.loads((tmp_path / "info").read_text())["spec"]["interactive"] is False


def test_a_plugin_that_hangs_ends_with_everything_it_has_started(tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/pid; wait"
    access = opened(written(tmp_path, config(plugin(tmp_path, script))))
    limited = Kubeconfig(access._files, access._reading, plugin_s=3.0)
    with pytest.raises(ConfigError, match=r"the exec plugin '.*plugin' did not end within 3 s; run it by hand"):
        headers(limited)
    pid = (tmp_path / "pid").read_text().strip()
    state = Path("/proc", pid, "stat")
    assert not state.exists() or state.read_text().split()[2] in "ZX"
    with pytest.raises(ConfigError):  # not run again with every request
        headers(limited)
    assert limited.runs == 1


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo rubbish", "failed to decode process output"),
        ("echo '[1]'", "malformed response"),
        ("echo 7", "the exec plugin"),
        ("exit 3", "process returned 3"),
        ("exec yes", "process returned 1. it printed more than 1,048,576 bytes"),
        ("kill -9 $$", "process returned 137"),
        ("echo 'no session' >&2; exit 1", "no session"),
        (credential(), "neither a token nor a client certificate"),
        (credential(clientCertificateData="x"), "neither a token nor a client certificate"),
        (credential(token=""), "a token that is empty"),
        (credential(token="a\\r\\nb"), "characters that no token has"),
        (credential(clientCertificateData="x", clientKeyData="y"), "client certificate or its key cannot be read"),
        ("echo '{\"apiVersion\": \"v0\", \"kind\": \"x\", \"status\": {}}'", "does not match"),
        (f"echo '{{\"apiVersion\": \"{V1}\", \"kind\": \"x\", \"status\": null}}'", "the exec plugin"),
    ],
)  # fmt: skip
def test_what_a_plugin_does_wrong_is_named(tmp_path: Path, script: str, told: str) -> None:
    assert told in refusal(tmp_path, written(tmp_path, config(plugin(tmp_path, script))))


def test_a_plugin_that_is_missing_or_asks_for_a_terminal_is_named(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": V1, "command": "no-such-plugin"}}
    assert "the exec plugin 'no-such-plugin' failed" in refusal(tmp_path, written(tmp_path, config(user)))
    asks = plugin(tmp_path, credential(token="t"), interactiveMode="Always")
    assert "asks for a terminal (interactiveMode: Always)" in refusal(tmp_path, written(tmp_path, config(asks)))


def test_a_plugin_with_many_warnings_is_used(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    script = "head -c 1000000 /dev/zero | tr '\\0' w >&2; " + credential(token="t")
    file = written(tmp_path, config(plugin(tmp_path, script)))
    reading = read([file], str(tmp_path / "temporary"), credentials=True)
    assert (reading.failed, reading.authorization) == ("", "Bearer t")


def test_a_failed_plugin_is_run_again_later(tmp_path: Path) -> None:
    file = written(tmp_path, config(plugin(tmp_path, "exit 3")))
    clock = Clock()
    access = Kubeconfig([file], opened(file)._reading, clock=clock)
    with pytest.raises(ConfigError, match="process returned 3"):
        headers(access)
    plugin(tmp_path, credential(token="t"))
    clock.time += 11
    assert headers(access) == {"Authorization": "Bearer t"}


def changed(path: str, value: object, user: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A kubeconfig whose field at ``path`` has another value; None removes it."""
    made = config(user or {"token": SECRET})
    at: Any = made
    *way, last = (int(step) if step.isdigit() else step for step in path.split("/"))
    for step in way:
        at = at[step]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return made


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "cannot be read as a kubeconfig"),
        ("", "cannot be read as a kubeconfig"),
        ("[a]", "cannot be read as a kubeconfig"),
        ("\0", "cannot be read as a kubeconfig"),
        (changed("users", [SECRET]), "cannot be read as a kubeconfig"),
        (changed("current-context", None), "no context is chosen; run kubectl config use-context with one of: c"),
        (changed("current-context", ""), "no context is chosen"),
        (changed("current-context", "d"), "names 'd', which is not among the contexts; there are: c"),
        (changed("contexts", None), "names 'c', which is not among the contexts; there are: none"),
        (changed("contexts/0/context/cluster", "d"), "the context 'c' names 'd', which is not among the clusters"),
        (changed("contexts/0/context/user", None), "the context 'c' names none of the users; there are: c"),
        (changed("contexts/0/context/user", "d"), "the context 'c' names 'd', which is not among the users"),
        (changed("clusters/0/cluster/server", None), "the cluster 'c' has no server"),
        (changed("clusters/0/cluster/server", "host:1"), "not a URL with https://"),
        (changed("clusters/0/cluster/server", "https://joe:word@host:1"), "with a user in it; give it in users"),
        (changed("clusters/0/cluster/certificate-authority", "gone.crt"), "gone.crt"),
        (changed("clusters/0/cluster/certificate-authority-data", "!"), "certificate authority cannot be read"),
        (changed("clusters/0/cluster/certificate-authority-data", "bm8="), "certificate authority cannot be read"),
        (changed("clusters/0/cluster/proxy-url", "socks5://p:1"), "only proxies with http:// are supported"),
        (changed("users/0/user/client-certificate-data", "bm8="), "client certificate without its key"),
        (changed("users/0/user", {"auth-provider": {"name": "oidc"}}), "auth-provider, which is not supported"),
        (changed("users/0/user", {"tokenFile": "gone"}), "gone"),
        (changed("users/0/user", {"token": "a b\r\n"}), "characters that no token has"),
    ],
)
def test_what_a_kubeconfig_lacks_is_named(tmp_path: Path, content: object, told: str) -> None:
    file = written(tmp_path, content)
    sentence = refusal(tmp_path, file)
    assert told in sentence
    assert f"{file}: {file}" not in sentence


def test_an_encrypted_key_is_an_error_and_no_question(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    certificate, key = self_signed()
    encrypted = serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
    )
    (tmp_path / "c.crt").write_bytes(certificate)
    (tmp_path / "c.key").write_bytes(encrypted)
    user = {"client-certificate": "c.crt", "client-key": "c.key"}
    assert "client certificate or its key cannot be read" in refusal(tmp_path, written(tmp_path, config(user)))


def test_what_the_cluster_says_of_its_connection_is_used(tmp_path: Path) -> None:
    cluster = {"insecure-skip-tls-verify": True, "tls-server-name": "api", "proxy-url": "http://proxy:3128"}
    access = opened(written(tmp_path, config({"token": "t"}, **cluster)))
    headers(access)
    assert (access.tls_name, access.proxy) == ("api", "http://proxy:3128")
    context = access.tls()
    assert context is not None
    assert context.verify_mode is ssl.CERT_NONE
    plain = config({"token": "t"})
    plain["clusters"][0]["cluster"]["server"] = "http://localhost:8001"
    reached = opened(written(tmp_path, plain))
    headers(reached)
    assert reached.tls() is None


def test_a_missing_package_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_files, "LIBRARY", "no_such_package")
    with pytest.raises(ConfigError, match=r"pip install '\.\[k8s\]' in a clone of Tierwise"):
        opened(written(tmp_path, config({"token": "t"})))


def test_the_flag_comes_first_then_the_variable_then_the_pod_then_the_home_folder(tmp_path: Path) -> None:
    def server(flag: Path | None, environ: dict[str, str]) -> str:
        return asyncio.run(open_access(flag, environ, tmp_path)).server

    def file(name: str) -> Path:
        made = config({"token": "t"})
        made["clusters"][0]["cluster"]["server"] = f"https://{name}"
        return Path(written(tmp_path, made, name))

    flag, variable = file("flag"), file("variable")
    (tmp_path / ".kube").mkdir()
    file(".kube/config")
    (tmp_path / "token").write_text("t")
    home = {"HOME": str(tmp_path)}
    pod = {**home, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    everything = {**pod, "KUBECONFIG": f"{tmp_path}/gone:{variable}"}
    assert server(flag, everything) == "https://flag"
    assert server(None, everything) == "https://variable"
    assert server(None, pod) == "https://10.0.0.1:443"
    assert server(None, home) == "https://.kube/config"
    (tmp_path / "token").unlink()
    assert server(None, pod) == "https://.kube/config"
    with pytest.raises(ConfigError, match=r"there is no API server: .*--kubeconfig, set KUBECONFIG, or make"):
        server(None, {"HOME": "/nowhere"})


def test_files_that_are_named_and_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--kubeconfig=.*/gone: there is no such file"):
        named_files(tmp_path / "gone", {})
    with pytest.raises(ConfigError, match=r"KUBECONFIG=.*none of these files is there"):
        named_files(None, {"KUBECONFIG": f"{tmp_path}/a:{tmp_path}/b"})
    assert named_files(None, {"KUBECONFIG": ""}) == []


def test_a_picker_in_a_cluster_imports_no_kubernetes_library() -> None:
    code = (
        "import sys, epp.kube.kubeconfig.identity, epp.server.app; print([m for m in sys.modules if 'kubernetes' in m])"
    )
    import subprocess

    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
