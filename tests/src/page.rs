//! Pages over plain HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result};

/// Returns the content at a path, in the form that is accepted.
///
/// # Errors
/// When nobody answers, or with something else than a page.
pub fn get(address: &str, path: &str, accept: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("connecting to {address}"))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
    anyhow::ensure!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
    // Bodies may come in chunks; their sizes stand on lines of their own.
    if !head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        return Ok(body.to_owned());
    }
    let (mut text, mut rest) = (String::new(), body);
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16)?;
        if size == 0 {
            break;
        }
        text.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    Ok(text)
}
