//! TLS: trusted certificate authorities, and the handshake.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tenure_core::Invalid;
use tenure_core::webhook::{CallError, CallErrorKind};
use tokio_rustls::TlsConnector;

use super::{Stream, Target, call_error};

/// Limit of an error text.
const TEXT_CHARACTERS_MAX: usize = 200;

/// Creates a connector that trusts the authorities of the system and those in `more`, as PEM.
pub(crate) fn connector(more: &str) -> Result<TlsConnector, Invalid> {
    let mut roots = RootCertStore::empty();
    // Unreadable system certificates are common and ignored. If there are no certificates at all,
    // each https call fails.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for certificate in CertificateDer::pem_slice_iter(more.as_bytes()) {
        let added = certificate.ok().and_then(|parsed| roots.add(parsed).ok());
        if added.is_none() {
            let expected = "certificates in PEM";
            return Err(Invalid::new("authorities", "unreadable", expected));
        }
    }
    let provider = Arc::new(ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Invalid::new("TLS", error.to_string(), "TLS 1.2 and 1.3"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Encrypts a connection; the certificate must match the host name, not the dialled address.
pub(crate) async fn encrypt(
    connector: &TlsConnector,
    target: &Target,
    stream: Box<dyn Stream>,
) -> Result<Box<dyn Stream>, CallError> {
    let name = match (target.name(), target.literal()) {
        (Some(name), _) => ServerName::try_from(name.to_owned())
            .map_err(|_cause| broken("the host name is not valid in a certificate"))?,
        (None, Some(address)) => ServerName::from(address),
        (None, None) => return Err(broken("the address has no host")),
    };
    match connector.connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => {
            let plain = error.to_string();
            let printable = plain.chars().filter(|c| !c.is_control());
            let text: String = printable.take(TEXT_CHARACTERS_MAX).collect();
            Err(broken(&format!("the TLS handshake failed: {text}")))
        }
    }
}

fn broken(text: &str) -> CallError {
    call_error(CallErrorKind::Tls, text)
}
