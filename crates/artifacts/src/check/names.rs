//! Names by the rules of Kubernetes.

/// Whether a text is an RFC 1123 subdomain: labels of small letters, digits and `-`, with dots
/// between them.
pub(crate) fn is_subdomain(text: &str) -> bool {
    !text.is_empty() && text.len() <= 253 && text.split('.').all(is_label)
}

/// Whether a text is one label of such a name.
pub(crate) fn is_label(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.chars().all(inside) && !text.starts_with('-') && !text.ends_with('-')
}
