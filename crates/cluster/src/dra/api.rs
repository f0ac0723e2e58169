//! The API server, as far as a driver needs it: claims are read, the node's ResourceSlice is
//! written.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider};

/// How long one request may take.
const LIMIT: Duration = Duration::from_secs(15);
/// Where a pod finds its service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// Why a request to the API server failed.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum ApiError {
    /// No address of an API server.
    #[error("--api-server {0}: write https://HOST:PORT")]
    Address(String),
    /// The service account's files.
    #[error("cannot read {0}: {1}. Is this a pod with a service account? Otherwise name --api-server, --token-file and --ca-file")]
    Account(String, String),
    /// No answer.
    #[error("the API server {0} does not answer: {1}")]
    Unreachable(String, String),
    /// An answer that refuses.
    #[error("the API server refuses {request}: {status} {message}")]
    Refused {
        /// Method and path.
        request: String,
        /// The HTTP status.
        status: u16,
        /// Its words.
        message: String,
    },
}

impl ApiError {
    fn is(&self, wanted: u16) -> bool {
        matches!(self, ApiError::Refused { status, .. } if *status == wanted)
    }
}

/// A connection to the API server.
#[derive(Debug, Clone)]
pub struct Api {
    agent: Agent,
    server: String,
    token: Option<PathBuf>,
}

impl Api {
    /// The API server of the cluster in which this pod runs.
    ///
    /// # Errors
    /// This is no pod.
    pub fn of_pod(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ApiError> {
        let need = |name: &str| variable(name).ok_or_else(|| ApiError::Account(name.to_owned(), "it is not set".to_owned()));
        let (host, port) = (need("KUBERNETES_SERVICE_HOST")?, need("KUBERNETES_SERVICE_PORT")?);
        // An IPv6 address has colons.
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let account = Path::new(ACCOUNT);
        Self::at(&format!("https://{host}:{port}"), Some(account.join("token")), Some(&account.join("ca.crt")))
    }

    /// An API server by its address, the file with its token, and the file with the certificates
    /// that it is checked against.
    ///
    /// # Errors
    /// This is no address, or the token or the certificates cannot be read.
    pub fn at(server: &str, token: Option<PathBuf>, authorities: Option<&Path>) -> Result<Self, ApiError> {
        let uri: Option<ureq::http::Uri> = server.parse().ok();
        let is_one =
            uri.is_some_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some() && uri.path().trim_matches('/').is_empty());
        if !is_one {
            return Err(ApiError::Address(server.to_owned()));
        }
        if let Some(file) = &token {
            fs::read_to_string(file).map_err(|error| ApiError::Account(file.display().to_string(), error.to_string()))?;
        }
        let mut tls = TlsConfig::builder().provider(TlsProvider::Rustls).unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()));
        if let Some(path) = authorities {
            let account = |why: String| ApiError::Account(path.display().to_string(), why);
            let text = fs::read(path).map_err(|error| account(error.to_string()))?;
            let mut certificates: Vec<Certificate<'static>> = Vec::new();
            for item in ureq::tls::parse_pem(&text) {
                if let PemItem::Certificate(certificate) = item.map_err(|error| account(error.to_string()))? {
                    certificates.push(certificate);
                }
            }
            if certificates.is_empty() {
                return Err(account("it has no certificate".to_owned()));
            }
            tls = tls.root_certs(RootCerts::new_with_certs(&certificates));
        }
        let config =
            Agent::config_builder().timeout_global(Some(LIMIT)).http_status_as_error(false).proxy(None).max_redirects(0).tls_config(tls.build()).build();
        Ok(Self { agent: config.new_agent(), server: server.trim_end_matches('/').to_owned(), token })
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, ApiError> {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.server)).header("Accept", "application/json");
        if let Some(file) = &self.token {
            // Read each time: kubelet renews it.
            let token = fs::read_to_string(file).map_err(|error| ApiError::Account(file.display().to_string(), error.to_string()))?;
            request = request.header("Authorization", format!("Bearer {}", token.trim()));
        }
        let unreachable = |why: String| ApiError::Unreachable(self.server.clone(), why);
        let answer = match body {
            None => self.agent.run(request.body(()).map_err(|error| unreachable(error.to_string()))?),
            Some(body) => {
                let request = request.header("Content-Type", "application/json").body(body.to_string());
                self.agent.run(request.map_err(|error| unreachable(error.to_string()))?)
            }
        };
        let mut answer = answer.map_err(|error| unreachable(error.to_string()))?;
        let status = answer.status().as_u16();
        let text = answer.body_mut().read_to_string().map_err(|error| unreachable(error.to_string()))?;
        let value: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        if (200..300).contains(&status) {
            return Ok(value);
        }
        let message = value["message"].as_str().unwrap_or(text.trim()).chars().take(500).collect();
        Err(ApiError::Refused { request: format!("{method} {path}"), status, message })
    }

    /// A claim.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn claim(&self, namespace: &str, name: &str) -> Result<Value, ApiError> {
        self.ask("GET", &format!("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}", plain(namespace), plain(name)), None)
    }

    /// The UID of a node.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn node_uid(&self, node: &str) -> Result<String, ApiError> {
        Ok(self.ask("GET", &format!("/api/v1/nodes/{}", plain(node)), None)?["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
    }

    /// Publishes a slice. `make` makes it for a generation; what is there already stays, if it is
    /// the same but for its generation. True if anything was written.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn publish(&self, name: &str, make: impl Fn(u64) -> Value) -> Result<bool, ApiError> {
        let path = format!("{SLICES}/{}", plain(name));
        let existing = match self.ask("GET", &path, None) {
            Ok(existing) => existing,
            Err(error) if error.is(404) => return self.ask("POST", SLICES, Some(&make(1))).map(|_| true),
            Err(error) => return Err(error),
        };
        let generation = existing.pointer("/spec/pool/generation").and_then(Value::as_u64).unwrap_or(0);
        if contains(&existing["spec"], &make(generation)["spec"]) {
            return Ok(false);
        }
        let mut next = make(generation + 1);
        // The server refuses with 409 what is based on an older version: it is tried again.
        next["metadata"]["resourceVersion"] = existing["metadata"]["resourceVersion"].clone();
        self.ask("PUT", &path, Some(&next)).map(|_| true)
    }
}

/// Whether `stored` is what was `wanted`: the server may add defaults to objects, and writes
/// quantities in its own way.
fn contains(stored: &Value, wanted: &Value) -> bool {
    match (stored, wanted) {
        (Value::Object(stored), Value::Object(wanted)) => wanted.iter().all(|(name, value)| stored.get(name).is_some_and(|stored| contains(stored, value))),
        (Value::Array(stored), Value::Array(wanted)) => {
            stored.len() == wanted.len() && stored.iter().zip(wanted).all(|(stored, wanted)| contains(stored, wanted))
        }
        (Value::String(stored), Value::String(wanted)) => stored == wanted || quantity(stored).is_some_and(|it| Some(it) == quantity(wanted)),
        _ => stored == wanted,
    }
}

fn quantity(text: &str) -> Option<u64> {
    text.ends_with('i').then(|| cumux_artifacts::plugin::mebibytes(text)).flatten()
}

/// Names of objects are DNS names; anything else must not become another path.
fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_ascii_alphanumeric() || "-._".contains(*c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_server_adds_is_no_change() {
        let wanted = json!({"a": {"b": [{"c": "2048Mi"}]}});
        assert!(contains(&json!({"a": {"b": [{"c": "2Gi", "added": 1}], "d": 2}}), &wanted));
        assert!(!contains(&json!({"a": {"b": [{"c": "3Gi"}]}}), &wanted));
        assert!(!contains(&json!({"a": {"b": []}}), &wanted));
        assert_eq!(plain("../x/y?z"), "..xyz");
    }

    #[test]
    fn outside_of_a_pod_it_is_said() {
        let text = Api::of_pod(|_| None).unwrap_err().to_string();
        assert!(text.contains("KUBERNETES_SERVICE_HOST") && text.contains("--api-server"), "{text}");
        let empty = tempfile::NamedTempFile::new().unwrap();
        let text = Api::at("https://x", None, Some(empty.path())).unwrap_err().to_string();
        assert!(text.contains("no certificate"), "{text}");
        for wrong in ["", "host", "host:6443", "ftp://host", "https://", "https://host/path"] {
            assert_eq!(Api::at(wrong, None, None).unwrap_err(), ApiError::Address(wrong.into()));
        }
        let text = Api::at("https://[::1]:6443/", Some("/nonexistent/token".into()), None).unwrap_err().to_string();
        assert!(text.contains("/nonexistent/token"), "{text}");
    }
}
