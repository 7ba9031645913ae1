//! Pages that are read over HTTP.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tessera_connection::{Outbound, Terms};

/// Most bytes of a page.
const MOST: usize = 4 << 20;
/// Most time for a page.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads a page, such as `/metrics` of `10.0.0.1:7401`.
///
/// # Errors
/// Why it could not be read.
pub(super) async fn page(address: &str, path: &str) -> Result<Vec<u8>, String> {
    let asked = async {
        let outbound = Outbound::default();
        let uri = outbound.page(address, path).map_err(|error| format!("{address}: {error}"))?;
        let connector = outbound.connector(address, &Terms::default());
        let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
        let answer = client.get(uri).await.map_err(|error| crate::failure::chain(&error))?;
        if !answer.status().is_success() {
            return Err(format!("it answered {}", answer.status()));
        }
        let body = Limited::new(answer.into_body(), MOST).collect().await.map_err(|error| error.to_string())?;
        Ok(body.to_bytes().to_vec())
    };
    tokio::time::timeout(PATIENCE, asked).await.map_err(|_| format!("no answer within {} s", PATIENCE.as_secs()))?
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_page_is_read_and_why_there_is_none_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("somebody comes");
            let mut asked = [0; 512];
            let length = stream.read(&mut asked).await.expect("it asks");
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npage").await.expect("it reads");
            String::from_utf8_lossy(&asked[..length]).into_owned()
        });
        assert_eq!(page(&address, "/metrics").await, Ok(b"page".to_vec()));
        let asked = serving.await.expect("it ends");
        assert!(
            asked.starts_with("GET /metrics HTTP/1.1\r\n") && asked.contains(&format!("host: {address}")),
            "{asked}"
        );
        let refused = page(&address, "/metrics").await.expect_err("nobody is there any more");
        assert!(refused.contains("Connection refused"), "{refused}");
    }
}
