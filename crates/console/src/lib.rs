//! The web console: the pages that a member serves at `/console/`, and nothing else.
//!
//! The pages are plain files in `assets/`, compiled into the binary as they are: no step builds them, and whoever runs
//! Tessera needs nothing beside it. They ask the JSON face of the same address and change nothing. A browser is told to
//! run and load nothing that does not come from here.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY};
use http::header::{X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS};
use http::{HeaderMap, StatusCode};
use xxhash_rust::xxh3::xxh3_128;

const HOME: &str = "/console/";

/// The page that everything begins with.
const INDEX: &str = "index.html";

/// The policy for what a browser may load and run: only content of the same origin. No page may show the console in a
/// frame.
const POLICY: &str =
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'";

/// A file of the console.
struct Asset {
    name: &'static str,
    kind: &'static str,
    content: &'static [u8],
}

macro_rules! asset {
    ($name:literal, $kind:literal) => {
        Asset { name: $name, kind: $kind, content: include_bytes!(concat!("../assets/", $name)) }
    };
}

const ASSETS: &[Asset] = &[
    asset!("index.html", "text/html; charset=utf-8"),
    asset!("icon.svg", "image/svg+xml"),
    asset!("style.css", "text/css; charset=utf-8"),
    asset!("app.js", "text/javascript; charset=utf-8"),
    asset!("api.js", "text/javascript; charset=utf-8"),
    asset!("dom.js", "text/javascript; charset=utf-8"),
    asset!("text.js", "text/javascript; charset=utf-8"),
    asset!("live.js", "text/javascript; charset=utf-8"),
    asset!("widgets.js", "text/javascript; charset=utf-8"),
    asset!("map-data.js", "text/javascript; charset=utf-8"),
    asset!("map-canvas.js", "text/javascript; charset=utf-8"),
    asset!("view-overview.js", "text/javascript; charset=utf-8"),
    asset!("view-map.js", "text/javascript; charset=utf-8"),
    asset!("view-jobs.js", "text/javascript; charset=utf-8"),
    asset!("view-job.js", "text/javascript; charset=utf-8"),
    asset!("view-queues.js", "text/javascript; charset=utf-8"),
    asset!("view-plan.js", "text/javascript; charset=utf-8"),
    asset!("view-reports.js", "text/javascript; charset=utf-8"),
    asset!("view-usage.js", "text/javascript; charset=utf-8"),
    asset!("view-nodes.js", "text/javascript; charset=utf-8"),
    asset!("view-events.js", "text/javascript; charset=utf-8"),
    asset!("view-control.js", "text/javascript; charset=utf-8"),
];

/// The tags of the files, in their order: what they hold, in short.
static TAGS: LazyLock<Vec<String>> =
    LazyLock::new(|| ASSETS.iter().map(|asset| format!("\"{:032x}\"", xxh3_128(asset.content))).collect());

/// The console, and the way to it from `/`.
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/", get(|| async { Redirect::temporary(HOME) }))
        .route("/console", get(|| async { Redirect::temporary(HOME) }))
        .route(HOME, get(|headers: HeaderMap| async move { file(INDEX, &headers) }))
        .route(
            "/console/{name}",
            get(|Path(name): Path<String>, headers: HeaderMap| async move { file(&name, &headers) }),
        )
}

fn file(name: &str, headers: &HeaderMap) -> Response {
    let Some(place) = ASSETS.iter().position(|asset| asset.name == name) else {
        return (StatusCode::NOT_FOUND, "the console has no such file; it begins at /console/\n").into_response();
    };
    let (asset, tag) = (&ASSETS[place], TAGS[place].as_str());
    // Kept by browsers, and asked about each time: a new release shows at once.
    let always = [
        (ETAG, tag),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    if known.flat_map(|value| value.split(',')).any(|value| value.trim().trim_start_matches("W/") == tag) {
        return (StatusCode::NOT_MODIFIED, always).into_response();
    }
    (always, [(CONTENT_TYPE, asset.kind)], asset.content).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use http::HeaderValue;

    use super::*;

    #[test]
    fn every_file_in_the_folder_is_served() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
        let there = std::fs::read_dir(folder).expect("the folder is there");
        let there: BTreeSet<String> =
            there.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned()).collect();
        let served: BTreeSet<String> = ASSETS.iter().map(|asset| asset.name.to_owned()).collect();
        assert_eq!(there, served);
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere_and_no_script_is_in_a_page() {
        for asset in ASSETS {
            let text = std::str::from_utf8(asset.content).expect("all files are text");
            let named = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!named.contains("http://") && !named.contains("https://"), "{} refers to elsewhere", asset.name);
            assert!(!text.contains("eval(") && !text.contains("innerHTML"), "{} makes code out of text", asset.name);
            assert!(!text.contains(" style=\""), "{} has a style that the policy refuses", asset.name);
        }
    }

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let first = file("app.js", &HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        assert_eq!(first.headers()[CONTENT_SECURITY_POLICY], POLICY);
        let tag: HeaderValue = first.headers()[ETAG].clone();
        let again = file("app.js", &HeaderMap::from_iter([(IF_NONE_MATCH, tag)]));
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        let changed = HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_static("\"other\""))]);
        assert_eq!(file("app.js", &changed).status(), StatusCode::OK);
        assert_eq!(file("../Cargo.toml", &HeaderMap::new()).status(), StatusCode::NOT_FOUND);
    }
}
