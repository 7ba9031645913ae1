//! Pages that are read over HTTP.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tessera_connection::{Outbound, Terms};
use tonic::codegen::http::Uri;

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
        let uri = format!("http://{address}{path}").parse::<Uri>().map_err(|error| format!("{address}: {error}"))?;
        let connector = Outbound::default().connector(address, &Terms::default());
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
