//! The text of a document.

use serde::Serialize;

use crate::error::Error;
use crate::visible;

/// A document on indented lines.
pub(super) fn text_of<D: Serialize>(document: &D) -> Result<String, Error> {
    text_as(document, serde_json::to_string_pretty)
}

pub(super) fn text_as<D: Serialize>(
    document: &D,
    write: impl Fn(&D) -> serde_json::Result<String>,
) -> Result<String, Error> {
    Ok(visible::json(write(document).map_err(std::io::Error::from)? + "\n"))
}
