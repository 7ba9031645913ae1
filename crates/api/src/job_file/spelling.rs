//! Guessing what a misspelt word was meant to be.

/// Words that people bring from elsewhere, and what they are called here.
const ELSEWHERE: [(&str, &str); 20] = [
    ("env", "environment"),
    ("envs", "environment"),
    ("cmd", "command"),
    ("run", "command"),
    ("workdir", "working_directory"),
    ("cwd", "working_directory"),
    ("timeout", "time_limit"),
    ("walltime", "time_limit"),
    ("replicas", "gang"),
    ("num_nodes", "gang"),
    ("retries", "retry.max_retries"),
    ("resources", "virtual_card"),
    ("held", "hold"),
    ("mem", "memory"),
    ("cpu", "cpus"),
    ("cpus", "host.cpus"),
    ("min_workers", "gang_min"),
    ("exclusive", "virtual_card.whole_cards"),
    ("node_affinity", "affinity.preferred"),
    ("anti_affinity", "affinity.avoid"),
];

/// The word among `known` that `word` was probably meant to be.
pub(super) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase().replace('-', "_");
    if word.len() > 64 {
        return None;
    }
    if let Some((_, here)) = ELSEWHERE.iter().find(|(elsewhere, _)| *elsewhere == word)
        && (known.contains(here) || here.split('.').next().is_some_and(|first| known.contains(&first)))
    {
        return Some(here);
    }
    known
        .iter()
        .map(|candidate| (distance(&word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len().max(3) / 3))
        .min()
        .map(|(_, candidate)| candidate)
}

/// The edit distance: the number of letters that must be added, removed, replaced or exchanged with their neighbour to
/// turn one word into the other.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let known = ["name", "queue", "priority", "command", "virtual_card", "retry", "environment"];
        assert_eq!(nearest("prioritty", &known), Some("priority"));
        assert_eq!(nearest("nmae", &known), Some("name"));
        assert_eq!(nearest("virtual-card", &known), Some("virtual_card"));
        assert_eq!(nearest("env", &known), Some("environment"));
        assert_eq!(nearest("retries", &known), Some("retry.max_retries"));
        assert_eq!(nearest("banana", &known), None);
        assert_eq!(nearest(&"x".repeat(1_000_000), &known), None);
    }
}
