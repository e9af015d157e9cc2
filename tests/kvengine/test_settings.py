"""The sources of settings, and the values that result."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvengine.errors import SettingsError
from kvengine.limits import grant
from kvengine.settings import Settings, read_settings

GIB = 1 << 30


def test_the_default_is_five_gib_a_worker() -> None:
    settings, warnings = read_settings({}, {})
    assert settings == Settings()
    assert warnings == ()
    assert settings.slots(block_bytes=1 << 20, chunk_blocks=16, workers=2) == 5 * GIB // (16 << 20)


def test_the_three_sizes_in_their_units() -> None:
    block = {"block_bytes": 1 << 20, "chunk_blocks": 16, "workers": 2}
    assert read_settings({"max_local_cpu_size": 2}, {})[0].slots(**block) == 128
    assert read_settings({"cpu_bytes_to_use": 4 * GIB}, {})[0].slots(**block) == 128
    assert read_settings({"num_cpu_blocks": 41_000}, {})[0].slots(**block) == 2562


def test_two_sizes_are_refused() -> None:
    with pytest.raises(SettingsError, match="max_local_cpu_size and num_cpu_blocks both say"):
        read_settings({"max_local_cpu_size": 2, "num_cpu_blocks": 7}, {})


def test_the_nearest_place_wins_and_the_size_is_one_question(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.yaml", tmp_path / "theirs.yaml"
    ours.write_text("chunk_size: 32\nstore_after: 3\n")
    theirs.write_text("chunk_size: 16\nmax_local_cpu_size: 9\nlocal_cpu: false\n")
    environment = {
        "KVENGINE_CHUNK_SIZE": "64",
        "KVENGINE_CONFIG_FILE": str(ours),
        "LMCACHE_CONFIG_FILE": str(theirs),
        "LMCACHE_LOCAL_CPU": "True",
    }
    settings, _ = read_settings({"chunk_size": 128, "num_cpu_blocks": 5}, environment)
    assert settings == Settings(num_cpu_blocks=5, chunk_size=128, store_after=3, local_cpu=True)


def test_the_seeds_files_and_variables_work_unchanged(tmp_path: Path) -> None:
    """LMCache's example "Offload KV cache to CPU" works: its YAML file, and its three variables."""
    file = tmp_path / "cpu-offload.yaml"
    file.write_text("chunk_size: 256\nlocal_cpu: true\nmax_local_cpu_size: 5\n")
    settings, warnings = read_settings({}, {"LMCACHE_CONFIG_FILE": str(file), "LMCACHE_USE_EXPERIMENTAL": "True"})
    assert settings == Settings(max_local_cpu_size=5.0)
    assert warnings == ()
    variables = {"LMCACHE_CHUNK_SIZE": "256", "LMCACHE_LOCAL_CPU": "True", "LMCACHE_MAX_LOCAL_CPU_SIZE": "5.0"}
    assert read_settings({}, variables) == (Settings(max_local_cpu_size=5.0), ())


@pytest.mark.parametrize(("value", "warned"), [("True", 1), ("False", 0)])
def test_a_tail_that_fills_no_chunk_is_named_if_it_was_requested(value: str, warned: int) -> None:
    _, warnings = read_settings({}, {"LMCACHE_SAVE_UNFULL_CHUNK": value})
    assert [line.partition(":")[0] for line in warnings] == ["LMCACHE_SAVE_UNFULL_CHUNK"] * warned


def test_what_lmcache_has_and_this_does_not_is_named_and_costs_nothing() -> None:
    asked = {"LMCACHE_LOCAL_DISK": "file:///mnt/kv/", "LMCACHE_REMOTE_URL": "", "LMCACHE_USE_LOCAL_CPU": "True"}
    settings, warnings = read_settings({}, asked)
    assert settings == Settings(local_cpu=True)
    assert [line.partition(":")[0] for line in warnings] == ["LMCACHE_LOCAL_DISK", "LMCACHE_USE_LOCAL_CPU"]


def test_what_lmcache_reads_in_vllms_extra_config_means_the_same_here() -> None:
    """LMCache's connector accepts its settings there, after "lmcache."; they precede the environment and the file."""
    extra = {
        "lmcache.chunk_size": 128, "lmcache.local_cpu": True, "lmcache.max_local_cpu_size": 2.5,
        "lmcache.cache_policy": "ARC", "lmcache.save_decode_cache": True,
        "discard_partial_chunks": False, "lmcache_rpc_port": "producer1", "skip_last_n_tokens": 0, "use_native": True,
    }  # fmt: skip
    environment = {"LMCACHE_CHUNK_SIZE": "64", "KVENGINE_CHUNK_SIZE": "32"}
    expected = Settings(max_local_cpu_size=2.5, chunk_size=128, eviction_policy="arc", store_decode=True)
    assert read_settings(extra, environment) == (expected, ())
    assert read_settings({"chunk_size": 512, **extra}, {})[0].chunk_size == 512, "our own name says more"
    asked = {"lmcache.local_disk": "file:///mnt/kv/", "lmcache.remote_url": None, "skip_last_n_tokens": 1}
    settings, warnings = read_settings(asked, {})
    assert settings == Settings()
    assert [line.partition(": has no effect here")[0] for line in warnings] == [
        "kv_connector_extra_config: lmcache.local_disk",
        "kv_connector_extra_config: skip_last_n_tokens",
    ]


@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_variable_is_one_that_is_not_set(tmp_path: Path, value: str) -> None:
    names = ("CHUNK_SIZE", "LOCAL_CPU", "MAX_LOCAL_CPU_SIZE", "CONFIG_FILE", "CACHE_POLICY", "SAVE_UNFULL_CHUNK")
    empty = {f"{whose}_{name}": value for whose in ("KVENGINE", "LMCACHE") for name in names}
    assert read_settings({}, empty) == (Settings(), ())
    file = tmp_path / "offload.yaml"
    file.write_text("chunk_size: 64\n")
    assert read_settings({}, {**empty, "LMCACHE_CONFIG_FILE": str(file)})[0] == Settings(chunk_size=64)


@pytest.mark.parametrize(
    ("extra", "environment", "says"),
    [
        ({"chunk_sise": 1}, {}, "there is no setting 'chunk_sise'; did you mean chunk_size"),
        ({}, {"KVENGINE_CHUNKS": "1"}, "there is no setting 'KVENGINE_CHUNKS'; did you mean KVENGINE_CHUNK_SIZE?"),
        ({}, {"KVENGINE_SIZE_GB": "1"}, "there is no setting 'KVENGINE_SIZE_GB'; known: KVENGINE_MAX_LOCAL_CPU_SIZE,"),
        ({"chunk_size": 0}, {}, "chunk_size: 0 must lie between 1 and 1,048,576 tokens"),
        ({"max_local_cpu_size": -1}, {}, "max_local_cpu_size: -1 must lie between 0 and 1,048,576 GiB"),
        ({"chunk_size": "inf"}, {}, "chunk_size: inf must lie between 1 and 1,048,576 tokens"),
        ({"chunk_size": 10**400}, {}, "0 must lie between 1 and 1,048,576 tokens"),
        ({"max_local_cpu_size": "nan"}, {}, "max_local_cpu_size: nan must lie between"),
        ({"max_local_cpu_size": "5GB"}, {}, "'5GB' is not a number; write one between 0 and 1,048,576 GiB per worker"),
        ({"num_cpu_blocks": 1.5}, {}, "num_cpu_blocks: 1.5 is not a whole number; write one between"),
        ({"local_cpu": "maybe"}, {}, "local_cpu: 'maybe' is neither true nor false"),
        ({"eviction_policy": "fifo"}, {}, "eviction_policy: 'fifo' is none of lru, arc"),
        ({}, {"KVENGINE_CONFIG_FILE": "/nowhere.yaml"}, "/nowhere.yaml: cannot be read"),
        ({}, {"KVENGINE_STORE_AFTER": "0"}, "KVENGINE_STORE_AFTER: 0 must lie between 1 and 1,048,576 times"),
        ({"chunk_size": ""}, {}, "kv_connector_extra_config: chunk_size: '' is not a number; write one between"),
        ({"lmcache.chunk_size": "many"}, {}, "kv_connector_extra_config: lmcache.chunk_size: 'many' is not a number"),
        ({"save_decode_cache": 1}, {}, "there is no setting 'save_decode_cache'; did you mean store_decode?"),
        ({}, {"LMCACHE_CHUNK_SIZE": "many"}, "LMCACHE_CHUNK_SIZE: 'many' is not a number"),
        ({}, {"LMCACHE_SAVE_DECODE_CACHE": "often"}, "LMCACHE_SAVE_DECODE_CACHE: 'often' is neither true nor false"),
    ],
)
def test_wrong_values_are_refused_with_key_value_and_range(
    extra: dict[str, object], environment: dict[str, str], says: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        read_settings(extra, environment)
    assert says in str(refused.value)


@pytest.mark.parametrize("whose", ["KVENGINE", "LMCACHE"])
def test_a_wrong_value_in_a_file_is_refused_with_the_files_name(tmp_path: Path, whose: str) -> None:
    file = tmp_path / "offload.yaml"
    file.write_text("max_local_cpu_size: -5\n")
    with pytest.raises(SettingsError) as refused:
        read_settings({}, {f"{whose}_CONFIG_FILE": str(file)})
    assert str(refused.value).startswith(f"{file}: max_local_cpu_size: -5 must lie between")


def test_a_policy_that_only_lmcache_has_is_named_and_lru_is_used() -> None:
    settings, warnings = read_settings({}, {"LMCACHE_CACHE_POLICY": "LFU"})
    assert settings == Settings()
    assert warnings == ("LMCACHE_CACHE_POLICY: there is no 'LFU' here, only lru, arc; lru is used",)
    assert read_settings({}, {"LMCACHE_CACHE_POLICY": "ARC"}) == (Settings(eviction_policy="arc"), ())


def test_null_leaves_a_setting_to_the_next_source() -> None:
    extra = {"chunk_size": None, "cpu_bytes_to_use": None}
    environment = {"KVENGINE_CHUNK_SIZE": "64", "KVENGINE_MAX_LOCAL_CPU_SIZE": "2"}
    assert read_settings(extra, environment)[0] == Settings(chunk_size=64, max_local_cpu_size=2.0)


def test_variables_that_kubernetes_makes_for_a_service_of_our_name_are_no_settings() -> None:
    for prefix in ("KVENGINE_", "KVENGINE_SMALL_"):
        links = {
            "SERVICE_HOST": "10.0.0.3",
            "SERVICE_PORT": "8000",
            "SERVICE_PORT_HTTP": "8000",
            "PORT": "tcp://10.0.0.3:8000",
            "PORT_8000_TCP": "tcp://10.0.0.3:8000",
            "PORT_8000_TCP_PROTO": "tcp",
            "PORT_8000_TCP_PORT": "8000",
            "PORT_8000_TCP_ADDR": "10.0.0.3",
        }
        environment = {prefix + name: value for name, value in links.items()}
        assert read_settings({}, environment) == (Settings(), ()), prefix
    with pytest.raises(SettingsError, match="there is no setting 'KVENGINE_PORT'"):
        read_settings({}, {"KVENGINE_PORT": "8000"})


@pytest.mark.parametrize("text", ["a: [", "- 1", "1: 2", "\x00"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=r"bad\.yaml: "):
        read_settings({}, {"KVENGINE_CONFIG_FILE": str(file)})


def test_a_chunk_is_whole_blocks() -> None:
    assert Settings(chunk_size=256).chunk_blocks(16) == 16
    assert Settings(chunk_size=32).chunk_blocks(128) == 1
    with pytest.raises(SettingsError, match="256 is no multiple of the engine's block size, 48 tokens; write 240"):
        Settings(chunk_size=256).chunk_blocks(48)


def machine(folder: Path, *, available: int, cgroup: int | None = None, used: int = 0) -> Path:
    (folder / "proc").mkdir()
    (folder / "proc/meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable:   {available // 1024} kB\n")
    group = folder / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max" if cgroup is None else str(cgroup))
    (group / "memory.current").write_text(str(used))
    return folder


def test_the_requested_size_is_granted_if_there_is_enough(tmp_path: Path) -> None:
    assert grant(GIB, workers_here=2, pinned=False, root=machine(tmp_path, available=10 * GIB)) == (GIB, None)


def test_a_clamped_size_is_logged_with_the_requested_size_and_the_reason(tmp_path: Path) -> None:
    given = grant(10 * GIB, workers_here=2, pinned=False, root=machine(tmp_path, available=10 * GIB))
    assert given.size_bytes == 4 * GIB
    assert given.sentence is not None
    assert "10.00 GiB of host memory asked for and 4.00 GiB taken: 80% of the 10.00 GiB" in given.sentence


def test_a_container_may_have_less_than_its_machine(tmp_path: Path) -> None:
    root = machine(tmp_path, available=100 * GIB, cgroup=6 * GIB, used=GIB)
    given = grant(10 * GIB, workers_here=1, pinned=False, root=root)
    assert given.size_bytes == 4 * GIB
    assert "memory.max leaves" in (given.sentence or "")


@pytest.mark.parametrize(
    ("most", "used", "stat"),
    [
        ("memory.max", "memory.current", "anon 5\nfile 900\ninactive_file {}\nactive_file 7\n"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "inactive_file 1\ntotal_inactive_file {}\n"),
    ],
)
def test_the_pages_of_files_that_were_read_once_are_no_memory_in_use(
    tmp_path: Path, most: str, used: str, stat: str
) -> None:
    root = machine(tmp_path, available=100 * GIB)
    group = root / "sys/fs/cgroup"
    (group / "memory").mkdir()
    (group / most).write_text(str(20 * GIB))
    (group / used).write_text(str(19 * GIB))
    (group / most).with_name("memory.stat").write_text(stat.format(14 * GIB))
    given = grant(100 * GIB, workers_here=1, pinned=False, root=root)
    assert given.size_bytes == 12 * GIB
    assert "80% of the 15.00 GiB" in (given.sentence or "")


def test_this_machine_has_limits_that_can_be_read() -> None:
    assert 0 < grant(1 << 60, workers_here=1, pinned=True).size_bytes < 1 << 60
