//! The metrics page in the format that its reader asks for.
//!
//! Pages are made as OpenMetrics. Readers that do not ask for it get the older text format, which differs in the
//! comments: there a counter's own name ends with `_total`, an info's with `_info`, and neither units nor an end mark
//! are known. Exemplars are dropped.

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The content type of the older format.
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

/// An OpenMetrics page as its reader wants it, by the values of the request's `Accept` headers: content type and text.
pub fn exposition<'a>(page: String, accept: impl IntoIterator<Item = &'a str>) -> (&'static str, String) {
    if accept.into_iter().any(|value| value.contains("application/openmetrics-text")) {
        (OPEN_METRICS, page)
    } else {
        (CLASSIC, to_classic(&page))
    }
}

/// Rewrites an OpenMetrics page.
fn to_classic(page: &str) -> String {
    let mut out = String::with_capacity(page.len());
    let mut help: Option<(&str, &str)> = None;
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            if let Some((name, kind)) = rest.split_once(' ') {
                describe(&mut out, name, kind, help.take());
            }
        } else if !line.starts_with('#') {
            out.push_str(line.split_once(" # ").map_or(line, |(sample, _)| sample));
            out.push('\n');
        }
    }
    out
}

fn describe(out: &mut String, name: &str, kind: &str, help: Option<(&str, &str)>) {
    let (suffix, kind) = match kind {
        "counter" => ("_total", "counter"),
        "info" => ("_info", "gauge"),
        "unknown" => ("", "untyped"),
        other => ("", other),
    };
    if let Some((named, text)) = help
        && named == name
    {
        out.push_str(&format!("# HELP {name}{suffix} {text}\n"));
    }
    out.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_rewritten_and_samples_kept() {
        let page = "# HELP calls Calls that ended.\n# TYPE calls counter\ncalls_total{code=\"OK\"} 3 # {trace=\"a\"} 1\n\
                    # HELP wait_seconds Wait.\n# TYPE wait_seconds gauge\n# UNIT wait_seconds seconds\nwait_seconds 0.5\n\
                    # HELP build Build.\n# TYPE build info\nbuild_info{version=\"1\"} 1\n# EOF\n";
        let expected = "# HELP calls_total Calls that ended.\n# TYPE calls_total counter\ncalls_total{code=\"OK\"} 3\n\
                        # HELP wait_seconds Wait.\n# TYPE wait_seconds gauge\nwait_seconds 0.5\n\
                        # HELP build_info Build.\n# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n";
        assert_eq!(to_classic(page), expected);
    }

    #[test]
    fn the_reader_chooses_the_format() {
        let page = || "# EOF\n".to_owned();
        assert_eq!(exposition(page(), []), (CLASSIC, String::new()));
        assert_eq!(exposition(page(), ["text/plain"]), (CLASSIC, String::new()));
        let accept = ["text/plain", "application/openmetrics-text;version=1.0.0,*/*;q=0.1"];
        assert_eq!(exposition(page(), accept), (OPEN_METRICS, page()));
    }
}
