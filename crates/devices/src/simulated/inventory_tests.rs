//! The inventory file: what it says, and where it is wrong.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<Inventory, InventoryError> {
    Inventory::parse(text, Path::new("pool.toml"))
}

fn card(extra: &str) -> String {
    format!(
        "[[node]]\nname = \"a\"\n[[node.card]]\nkind = \"gpu\"\nvendor = \"v\"\nmodel = \"m\"\n\
         memory_gib = 16\ntflops = {{ fp16 = 9 }}\n{extra}"
    )
}

fn complaint(text: &str) -> String {
    parse(text).expect_err("it is wrong").to_string()
}

#[test]
fn a_full_entry_is_understood() {
    let text = card(
        "count = 2\nisolation = \"hard\"\nmax_slices = 7\nlink = { kind = \"fabric\", megabytes_per_second = 450000 }\n",
    );
    let inventory = parse(&text).expect("it is right");
    let declared = &inventory.node("a").expect("declared").cards[0];
    assert_eq!((declared.count, declared.memory, declared.isolation), (2, Mebibytes(16 * 1024), Isolation::Hard));
    assert_eq!(declared.rated[&Precision::Fp16], MilliTflops(9000));
    assert_eq!(declared.links(1, 0..2)[0].peer_index, 0);
    assert_eq!(inventory.node("b"), None);
}

#[test]
fn defaults_are_one_card_with_soft_isolation() {
    let inventory = parse(&card("")).expect("it is right");
    let declared = &inventory.nodes[0].cards[0];
    assert_eq!((declared.count, declared.isolation, declared.max_slices, declared.link), (1, Isolation::Soft, 0, None));
}

#[test]
fn fractions_of_a_tflops_and_of_a_gib_are_kept() {
    let text = card("").replace("fp16 = 9", "fp16 = 0.125").replace("memory_gib = 16", "memory_gib = 0.5");
    let inventory = parse(&text).expect("it is right");
    assert_eq!(inventory.nodes[0].cards[0].rated[&Precision::Fp16], MilliTflops(125));
    assert_eq!(inventory.nodes[0].cards[0].memory, Mebibytes(512));
}

#[test]
fn every_mistake_has_its_line_and_column() {
    assert!(complaint("[[node]\n").starts_with("pool.toml:1:"));
    assert_eq!(complaint(&card("count = 0\n")), "pool.toml:9:9: `count` must be from 1 to 256");
}

#[test]
fn wrong_values_are_refused_where_they_stand() {
    let cases = [
        (card("colour = \"red\"\n"), "9:1", "unknown field"),
        (card("").replace("\"gpu\"", "\"tpu\""), "4:8", "unknown variant"),
        (card("").replace("memory_gib = 16", "memory_gib = -1"), "7:14", "memory_gib"),
        (card("").replace("memory_gib = 16", "memory_gib = nan"), "7:14", "memory_gib"),
        (card("").replace("fp16 = 9", "fp16 = 0"), "8:19", "fp16"),
        (card("").replace("fp16 = 9", "fp16 = 1e30"), "8:19", "fp16"),
        (card("").replace("{ fp16 = 9 }", "{}"), "8:10", "at least one precision"),
        (card("").replace("vendor = \"v\"", "vendor = \" \""), "5:10", "vendor"),
        (card("").replace("name = \"a\"", "name = \"\""), "2:8", "name"),
        (format!("{}{}", card(""), card("")), "10:8", "declared twice"),
    ];
    for (text, place, word) in cases {
        let complaint = complaint(&text);
        assert!(
            complaint.starts_with(&format!("pool.toml:{place}: ")) && complaint.contains(word),
            "{complaint}\n{text}"
        );
    }
}

#[test]
fn columns_are_counted_in_characters() {
    assert_eq!(position("häß\nx", "häß".len()), (1, 4));
    assert_eq!(position("a\nbc", 3), (2, 2));
    assert_eq!(position("ä", 1), (1, 2), "inside a character counts as behind it");
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in ".{0,400}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_value_makes_the_reader_panic(field in "[a-z_]{1,12}", value in "[-0-9a-z\"\\[\\]{}=., ]{0,24}") {
        let _ = parse(&card(&format!("{field} = {value}\n")));
    }

    #[test]
    fn every_accepted_rate_is_positive(rate in any::<f64>()) {
        if let Ok(inventory) = parse(&card("").replace("fp16 = 9", &format!("fp16 = {rate:e}"))) {
            prop_assert!(inventory.nodes[0].cards[0].rated[&Precision::Fp16] > MilliTflops::ZERO);
        }
    }
}

/// The text of docs/inventory.md.
fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/inventory.md");
    fs::read_to_string(path).expect("docs/inventory.md is there")
}

/// The fields that are known where this text puts a strange one, as the complaint about it lists them.
fn known(text: &str) -> Vec<String> {
    let complaint = complaint(text);
    let (_, expected) = complaint.split_once("expected ").unwrap_or_else(|| panic!("no fields are named: {complaint}"));
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_field_is_described_and_nothing_else_is() {
    let page = page();
    let link = "link = { kind = \"fabric\", strange = 1 }\n";
    let cases = [
        ("Of the file", known("strange = 1\n")),
        ("Of a node", known("[[node]]\nname = \"a\"\nstrange = 1\n")),
        ("Of cards", known(&card("strange = 1\n"))),
        ("Of `tflops`", known(&card("").replace("fp16 = 9", "strange = 9"))),
        ("Of `link`", known(&card(link))),
    ];
    for (section, fields) in cases {
        let (_, rest) = page.split_once(&format!("\n{section}")).unwrap_or_else(|| panic!("no table {section:?}"));
        let rows = rest.lines().skip_while(|line| !line.starts_with("| `")).take_while(|line| line.starts_with("| `"));
        let described: Vec<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
        assert_eq!(described, fields, "{section}");
    }
}

#[test]
fn the_example_is_good() {
    let page = page();
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let inventory = parse(example).expect("it is right");
    assert_eq!(inventory.nodes[0].cards.iter().map(|card| card.count).collect::<Vec<_>>(), [2, 1]);
}
