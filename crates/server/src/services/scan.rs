//! Lists of any length, page by page, without ever building the whole.

use prost::Message;
use tessera_api::limits;
use tessera_api::page::{Page, PlaceKey};

/// Things looked at for one page. A page of a filter that takes few of many things ends early, with the token that
/// goes on.
const LOOKED_AT: usize = 100_000;

/// Fills a page with what `pick` makes of the things that follow it, and answers the token of the next page.
pub(crate) fn page<K: PlaceKey, T, V: Message>(
    page: &Page<K>,
    things: impl Iterator<Item = T>,
    key: impl Fn(&T) -> K,
    pick: impl Fn(&T) -> Option<V>,
) -> (Vec<V>, String) {
    let mut picked = Vec::new();
    let mut bytes = 0;
    let mut last = None;
    let next = |last: Option<K>| last.map(|last| page.token_after(&last)).unwrap_or_default();
    for (looked_at, thing) in things.enumerate() {
        if looked_at == LOOKED_AT || bytes >= limits::PAGE_BYTES {
            return (picked, next(last));
        }
        match pick(&thing) {
            // One more than fits: there is a next page.
            Some(_) if picked.len() == page.size => return (picked, next(last)),
            Some(view) => {
                bytes += view.encoded_len();
                picked.push(view);
            }
            None => {}
        }
        last = Some(key(&thing));
    }
    (picked, String::new())
}

#[cfg(test)]
mod tests {
    use tessera_api::v1::ListJobsRequest;
    use tessera_ledger::JobId;

    use super::*;

    fn wanted(page_size: u32, page_token: String) -> Page<JobId> {
        Page::of(&ListJobsRequest { page_size, page_token, ..Default::default() }).expect("a token that was just made")
    }

    fn all(size: u32, upto: u64, takes: impl Fn(u64) -> bool) -> (Vec<u64>, usize) {
        let (mut seen, mut token, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let asked = wanted(size, token);
            let first = asked.after.map_or(1, |after| after.0 + 1);
            let (page, next) = page(&asked, first..=upto, |job| JobId(*job), |job| takes(*job).then_some(*job));
            assert!(page.len() <= size as usize);
            seen.extend(page);
            pages += 1;
            if next.is_empty() {
                return (seen, pages);
            }
            token = next;
        }
    }

    #[test]
    fn pages_together_are_what_the_filter_takes() {
        let even = |job: u64| job.is_multiple_of(2);
        let (seen, pages) = all(10, 100, even);
        assert_eq!(seen, (1..=100).filter(|job| even(*job)).collect::<Vec<_>>());
        assert_eq!(pages, 5, "the last page says that it is the last");
    }

    #[test]
    fn a_filter_that_takes_nothing_comes_to_an_end_in_bounded_steps() {
        let (seen, pages) = all(10, 250_000, |_| false);
        assert_eq!((seen, pages), (Vec::new(), 3));
    }
}
