//! A server that speaks S3, for tests of what is kept in buckets.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// The bucket that is there from the beginning.
const BUCKET: &str = "tests";

/// A server with one bucket on this machine. It ends with this value, and keeps nothing.
#[derive(Debug)]
pub struct BucketServer {
    process: Child,
    /// `host:port`.
    address: String,
}

impl BucketServer {
    /// Starts one, and waits until it answers.
    ///
    /// # Errors
    /// When it cannot be started: `deploy/setup.sh test` installs it.
    pub fn start() -> io::Result<Self> {
        let mut command = Command::new("moto_server");
        command.args(["-H", "127.0.0.1", "-p", "0"]).env("PYTHONUNBUFFERED", "1");
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let told = process.stderr.take().into_iter().flat_map(|told| BufReader::new(told).lines());
        let mut addresses = told.map_while(Result::ok).filter_map(|line| {
            let (_, address) = line.split_once("Running on http://")?;
            Some(address.split_whitespace().next()?.to_owned())
        });
        let address = addresses.next().ok_or_else(|| io::Error::other("moto_server ended without saying where it is"));
        let server = Self { process, address: address? };
        // What it writes of each request must go somewhere.
        std::thread::spawn(move || addresses.for_each(drop));
        server.make_bucket()?;
        Ok(server)
    }

    /// The URL of a place in its bucket.
    #[must_use]
    pub fn url(&self, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}")
    }

    /// The address of the bucket's server, a `host:port`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The variables with which a process reaches it.
    #[must_use]
    pub fn variables(&self) -> Vec<(String, String)> {
        Self::variables_at(&self.address)
    }

    /// The variables with which a process reaches it by another address.
    #[must_use]
    pub fn variables_at(address: &str) -> Vec<(String, String)> {
        let endpoint = format!("http://{address}");
        let variables = [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
        ];
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    fn make_bucket(&self) -> io::Result<()> {
        let mut stream = TcpStream::connect(&self.address)?;
        let address = &self.address;
        let request =
            format!("PUT /{BUCKET} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        match answer.split_whitespace().nth(1) {
            Some("200") => Ok(()),
            _ => Err(io::Error::other(format!("no bucket could be made: {answer}"))),
        }
    }
}

impl Drop for BucketServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
