//! Finding the route of a path, and what the path says of the request.

use http::Method;
use percent_encoding::percent_decode_str;

use crate::Described;

/// The fields that a path gives, each with its value.
pub(crate) type Bound = Vec<(&'static str, String)>;

/// The result of looking up a path.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    /// The route, and what the path says.
    Route(&'a Described, Bound),
    /// The path is known, for these HTTP methods.
    OtherVerbs(Vec<&'static str>),
    /// No route has this path.
    Nothing,
}

pub(crate) fn find<'a>(described: &'a [Described], verb: &Method, path: &str) -> Found<'a> {
    let mut others = Vec::new();
    for candidate in described {
        let Some(bound) = bind(candidate.route.path, path) else { continue };
        if candidate.route.verb.name() == verb.as_str() {
            return Found::Route(candidate, bound);
        }
        others.push(candidate.route.verb.name());
    }
    if others.is_empty() { Found::Nothing } else { Found::OtherVerbs(others) }
}

/// The values of the fields in a path, if it matches the template.
fn bind(template: &'static str, path: &str) -> Option<Bound> {
    let mut bound = Bound::new();
    let (mut wanted, mut given) = (template.split('/'), path.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(bound),
            (Some(wanted), Some(given)) => {
                let ((wanted, wanted_verb), (given, given_verb)) = (apart(wanted), apart(given));
                if wanted_verb != given_verb {
                    return None;
                }
                match wanted.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
                    Some(field) => {
                        let value = percent_decode_str(given).decode_utf8().ok().filter(|value| !value.is_empty())?;
                        bound.push((field, value.into_owned()));
                    }
                    None if wanted == given => {}
                    None => return None,
                }
            }
            _ => return None,
        }
    }
}

/// A part of a path and the verb behind its colon.
fn apart(part: &str) -> (&str, &str) {
    part.rsplit_once(':').unwrap_or((part, ""))
}

#[cfg(test)]
mod tests {
    use super::bind;

    fn bound(template: &'static str, path: &str) -> Option<Vec<String>> {
        Some(bind(template, path)?.into_iter().map(|(field, value)| format!("{field}={value}")).collect())
    }

    #[test]
    fn a_path_gives_the_fields_that_its_template_names() {
        let cards = "/v1/nodes/{node.name}/cards/{index}";
        let both = vec!["node.name=a b".to_owned(), "index=3".to_owned()];
        assert_eq!(bound(cards, "/v1/nodes/a%20b/cards/3"), Some(both));
        assert_eq!(bound("/v1/jobs/{job_id}:why", "/v1/jobs/7:why"), Some(vec!["job_id=7".to_owned()]));
    }

    #[test]
    fn a_slash_or_colon_in_a_name_is_written_encoded() {
        assert_eq!(bound("/v1/queues/{name}", "/v1/queues/a%2Fb%3Ac"), Some(vec!["name=a/b:c".to_owned()]));
    }

    #[test]
    fn what_is_not_the_path_is_not_taken_for_it() {
        for path in ["/v1/jobs/", "/v1/jobs/7/8", "/v1/jobs/7:hold", "/v1/jobs/%ff:why", "/v1/jobs/:why"] {
            assert_eq!(bound("/v1/jobs/{job_id}:why", path), None, "{path}");
        }
    }
}
