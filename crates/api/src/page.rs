//! Pages of lists: how many things, after which one. A page token is opaque and bound to the query that it continues.

use prost::Message;
use tessera_ledger::{CardId, JobId, NodeId};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::Refusal;
use crate::token::{self, Purpose};
use crate::{limits, v1};

/// A request for a page of a list.
pub trait PagedRequest: Message + Clone + Default {
    /// The number of entries that the caller asks for; 0: the default of [`limits::PAGE`].
    fn page_size(&self) -> u32;

    /// The token that the previous page returned; empty for the first page.
    fn page_token(&self) -> &str;

    /// The request without what may differ between the pages of one query.
    #[must_use]
    fn query(&self) -> Self;
}

macro_rules! paged {
    ($($message:ident),* $(,)?) => {
        $(impl PagedRequest for v1::$message {
            fn page_size(&self) -> u32 {
                self.page_size
            }

            fn page_token(&self) -> &str {
                &self.page_token
            }

            fn query(&self) -> Self {
                let mut query = self.clone();
                query.page_size = 0;
                query.page_token.clear();
                query.consistency = 0;
                query
            }
        })*
    };
}

paged!(ListJobsRequest, ListNodesRequest, ListCardsRequest, GetBlockMapRequest, ListQueuesRequest);

/// The sort key of a list: the key of the last entry of a page determines where the next page begins.
pub trait PlaceKey: Sized {
    fn to_bytes(&self) -> Vec<u8>;

    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

impl PlaceKey for JobId {
    fn to_bytes(&self) -> Vec<u8> {
        self.0.to_be_bytes().to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self(u64::from_be_bytes(bytes.try_into().ok()?)))
    }
}

impl PlaceKey for NodeId {
    fn to_bytes(&self) -> Vec<u8> {
        self.0.to_be_bytes().to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self(u32::from_be_bytes(bytes.try_into().ok()?)))
    }
}

impl PlaceKey for CardId {
    fn to_bytes(&self) -> Vec<u8> {
        [self.node.0.to_be_bytes(), self.index.to_be_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (node, index) = bytes.split_at_checked(4)?;
        let index = u32::from_be_bytes(index.try_into().ok()?);
        Some(Self { node: NodeId::from_bytes(node)?, index })
    }
}

impl PlaceKey for String {
    fn to_bytes(&self) -> Vec<u8> {
        self.as_bytes().to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::from_utf8(bytes.to_vec()).ok()
    }
}

/// The page that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<K> {
    /// Most things on it.
    pub size: usize,
    /// The last thing of the page before; `None` for the first page.
    pub after: Option<K>,
    query: u64,
}

impl<K: PlaceKey> Page<K> {
    /// Reads which page a request wants.
    ///
    /// # Errors
    /// A [`Refusal`] with PAGE_TOKEN_INVALID when the token is damaged or belongs to another query.
    pub fn of<R: PagedRequest>(request: &R) -> Result<Self, Refusal> {
        let size = if request.page_size() == 0 { limits::PAGE } else { request.page_size().min(limits::LARGEST_PAGE) };
        let query = xxh3_64(&request.query().encode_to_vec());
        let invalid = || {
            let message = "page_token: is damaged or belongs to another query; hand back next_page_token unchanged, with the \
                           same filter, or start again without it";
            Refusal::new(v1::ErrorReason::PageTokenInvalid, message)
        };
        let after = match request.page_token() {
            "" => None,
            text => {
                let place = token::read(Purpose::Page, query, text).ok_or_else(invalid)?;
                Some(K::from_bytes(&place).ok_or_else(invalid)?)
            }
        };
        Ok(Self { size: usize::try_from(size).unwrap_or(usize::MAX), after, query })
    }

    /// The token with which the page after `last` is asked for.
    #[must_use]
    pub fn token_after(&self, last: &K) -> String {
        token::make(Purpose::Page, self.query, &last.to_bytes())
    }

    /// Fills the page from what follows [`Self::after`], and answers it with the token of the next one, which is empty
    /// when nothing is left.
    pub fn fill<T>(&self, things: impl IntoIterator<Item = T>, key: impl Fn(&T) -> K) -> (Vec<T>, String) {
        let mut things = things.into_iter();
        let page: Vec<T> = things.by_ref().take(self.size).collect();
        let next = match page.last() {
            Some(last) if things.next().is_some() => self.token_after(&key(last)),
            _ => String::new(),
        };
        (page, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(page_size: u32, page_token: String) -> v1::ListJobsRequest {
        v1::ListJobsRequest { page_size, page_token, ..Default::default() }
    }

    #[test]
    fn pages_together_are_the_whole_list() {
        let everything: Vec<JobId> = (1..=25).map(JobId).collect();
        let mut seen = vec![];
        let mut token = String::new();
        loop {
            let page = Page::<JobId>::of(&list(10, token)).expect("a token that was just made");
            let rest = everything.iter().copied().filter(|job| page.after.is_none_or(|after| *job > after));
            let (jobs, next) = page.fill(rest, |job| *job);
            seen.extend(jobs);
            token = next;
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(seen, everything);
    }

    #[test]
    fn sizes_are_kept_within_bounds() {
        let size = |size| Page::<JobId>::of(&list(size, String::new())).expect("no token").size;
        assert_eq!((size(0), size(7), size(u32::MAX)), (100, 7, 1000));
    }

    #[test]
    fn a_token_of_another_query_is_refused() {
        let token = Page::<JobId>::of(&list(10, String::new())).expect("no token").token_after(&JobId(3));
        let filter = Some(v1::JobFilter { queue: "vision".to_owned(), ..Default::default() });
        let other = v1::ListJobsRequest { filter, ..list(10, token.clone()) };
        let refusal = Page::<JobId>::of(&other).expect_err("another filter");
        assert_eq!(refusal.reason(), v1::ErrorReason::PageTokenInvalid);
        let bigger = Page::<JobId>::of(&list(50, token)).expect("the size may change between pages");
        assert_eq!(bigger.after, Some(JobId(3)));
        assert!(Page::<JobId>::of(&list(10, "garbage".to_owned())).is_err());
    }

    #[test]
    fn keys_are_read_back() {
        let card = CardId { node: NodeId(7), index: 3 };
        assert_eq!(CardId::from_bytes(&card.to_bytes()), Some(card));
        assert_eq!(CardId::from_bytes(b"abc"), None);
        assert_eq!(String::from_bytes("ä".as_bytes()), Some("ä".to_owned()));
    }
}
