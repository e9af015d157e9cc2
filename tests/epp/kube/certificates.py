"""Certificate authorities of tests, and client certificates that they sign."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Authority:
    """A certificate authority for client certificates; ``pem`` is its own certificate."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a test")])
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        made = self._certificate(self._name, self._key).add_extension(constraints, critical=True)
        self.pem = made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def client(self, user: str) -> tuple[bytes, bytes]:
        """Return the certificate of a user of the Kubernetes API, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user)])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        made = self._certificate(name, key).add_extension(usage, critical=False).sign(self._key, hashes.SHA256())
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        return made.public_bytes(encoding), key.private_bytes(encoding, form, serialization.NoEncryption())

    def _certificate(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(self._name).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        return builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
