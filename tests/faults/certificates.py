"""Certificates of an authority of one's own, for a server on 127.0.0.1."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path


def certified(folder: Path, name: str) -> tuple[Path, ssl.SSLContext]:
    """A new authority's certificate, as a file, and a server's side that it vouches for."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    def called(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    authority, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    now, issuer = datetime.datetime.now(tz=datetime.UTC), called(name)
    made = []
    for subject, public, is_authority in (
        (issuer, authority.public_key(), True),
        (called("127.0.0.1"), key.public_key(), False),
    ):
        builder = (
            x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        )
        if not is_authority:
            address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
            builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        made.append(builder.sign(authority, hashes.SHA256()))
    files = [folder / f"{name}-{part}.pem" for part in ("authority", "server", "key")]
    for path, certificate in zip(files, made, strict=False):
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[2].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files[1], files[2])
    return files[0], context
