"""A certificate of our own, made for each test that needs one."""

from __future__ import annotations

import datetime
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """The files of a self-signed certificate for this host's loopback addresses, and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    today = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), today - day, today + day
    )
    hosts = [x509.IPAddress(ip_address("127.0.0.1")), x509.IPAddress(ip_address("::1"))]
    certificate = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False).sign(key, hashes.SHA256())
    paths = folder / "cert.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    return paths
