//! Texts of job files: what a person wrote arrives, or is refused by name.

use tessera_api::job_file::{Notation, read};
use tessera_api::v1;

/// Values that a person may write where a text is wanted, and that are no text to the readers.
const WRITTEN: [&str; 20] = [
    "1.10",
    "1e-5",
    "1e3",
    "1.0",
    "0x1F",
    "0o17",
    ".5",
    "3.0e-4",
    "100000000000000000000",
    "0.1",
    "7",
    "true",
    "True",
    "+5",
    "-0",
    "0b11",
    "1_000",
    "-1.50",
    ".inf",
    "2026-11-29",
];

fn yaml(text: &str) -> Result<v1::JobSpec, String> {
    read(text, Notation::Yaml).map_err(|error| error.to_string())
}

/// A job of which `value` is a text in every way that there is.
fn everywhere(value: &str) -> String {
    format!(
        "name: {value}\ncommand: [echo, {value}]\nenvironment: {{ A: {value}, {value}: b }}\nlabels: {{ a: {value} }}\n\
         node_labels: {{ a: {value} }}\nvirtual_card: {{ tflops: 1, models: [{value}] }}\n\
         affinity: {{ avoid: {{ a: {value} }}, preferred: [{{ key: a, value: {value} }}], data: [{value}] }}\n"
    )
}

#[test]
fn a_text_of_yaml_arrives_as_it_is_written() {
    for value in WRITTEN {
        let spec = yaml(&everywhere(value)).unwrap_or_else(|error| panic!("{value}: {error}"));
        let affinity = spec.affinity.unwrap_or_default();
        let card = spec.virtual_card.unwrap_or_default();
        let texts = [
            &spec.name,
            &spec.command[1],
            &spec.environment["A"],
            &spec.labels["a"],
            &spec.node_labels["a"],
            &affinity.avoid["a"],
            &affinity.preferred[0].value,
            &affinity.data[0],
            &card.models[0],
        ];
        assert!(texts.iter().all(|text| *text == value), "{value} became {texts:?}");
        assert!(spec.environment.contains_key(value), "{:?}", spec.environment);
    }
}

#[test]
fn a_text_of_toml_arrives_as_it_is_written() {
    let written = ["1.10", "1e-5", "0x1F", "0o17", "+7", "1_000", "7", "-0", "true", "inf", "2026-11-29", "'a # b'"];
    for value in written {
        let text = format!(
            "name = {value}\ncommand = ['echo', {value}]\nenvironment = {{ A = {value} }}\n\
             virtual_card = {{ tflops = 1, models = [{value}] }}\n"
        );
        let spec = read(&text, Notation::Toml).unwrap_or_else(|error| panic!("{value}: {error}"));
        let card = spec.virtual_card.unwrap_or_default();
        let value = value.trim_matches('\'');
        assert_eq!([&spec.name, &spec.command[1], &spec.environment["A"], &card.models[0]], [value; 4]);
    }
}

#[test]
fn json_is_kept_or_wants_quotes_by_name() {
    let with = |value: &str| {
        let text = format!(
            "{{\"command\": [\"a\"],\n\"environment\": {{\"A\": {value}}}, \"virtual_card\": {{\"tflops\": 1.5}}}}"
        );
        read(&text, Notation::Json).map(|spec| spec.environment["A"].clone()).map_err(|error| error.to_string())
    };
    for value in ["7", "-7", "18446744073709551615", "true", "\"1.10\""] {
        assert_eq!(with(value), Ok(value.trim_matches('"').to_owned()));
    }
    for value in ["1.10", "1e-5", "100000000000000000000", "-0", "null"] {
        let said = with(value).expect_err(value);
        assert!(
            said.contains("line 2") && said.contains("environment.A") && said.contains("quotes"),
            "{value}: {said}"
        );
    }
    let name = read("{\"name\": 1.10}", Notation::Json).expect_err("a number").to_string();
    assert!(name.contains("name") && name.contains("quotes"), "{name}");
}

#[test]
fn numbers_stay_numbers_where_numbers_are_wanted() {
    let text =
        "command = ['a']\ngang = 0x10\npriority = 1_0\nvirtual_card = { tflops = 1_000.5 }\nhost = { cpus = 2 }\n";
    let spec = read(text, Notation::Toml).expect("a good file");
    let tflops = spec.virtual_card.map(|card| card.milli_tflops);
    assert_eq!((spec.gang, spec.priority, tflops), (16, Some(10), Some(1_000_500)));
}

#[test]
fn nothing_that_is_written_is_dropped() {
    let with = |lines: &str| yaml(&format!("command: [a]\nvirtual_card: {{ tflops: 1 }}\n{lines}")).expect_err(lines);
    insta::assert_snapshot!(with("environment:\n  A: b\n  A: c\n"), @"line 5, column 6: environment.A: must be there only once");
    insta::assert_snapshot!(with("environment:\n  A:\n"), @r#"line 4, column 3: environment.A: says nothing; an empty text is written as "", and a word such as null in quotes"#);
    insta::assert_snapshot!(with("labels:\n  a: null\n"), @r#"line 4, column 3: labels.a: says nothing; an empty text is written as "", and a word such as null in quotes"#);
    insta::assert_snapshot!(with("environment:\n  A: !vault b\n"), @"line 4, column 6: environment.A: has the tag !vault, which means nothing in a job file; leave it out, or put it in quotes");
    insta::assert_snapshot!(with("name: !x b\n"), @"line 3, column 7: name: has the tag !x, which means nothing in a job file; leave it out, or put it in quotes");
    insta::assert_snapshot!(with("labels:\n  !x a: b\n"), @"line 4, column 3: labels.?: has the tag !x, which means nothing in a job file; leave it out, or put it in quotes");
    insta::assert_snapshot!(with("script: 7\n---\nname: b\n"), @"line 1, column 1: has more than one document, and a job file is one job");
    let twice = "{\"command\": [\"a\"], \"virtual_card\": {\"tflops\": 1}, \"labels\": {\"a\": \"b\", \"a\": \"c\"}}";
    insta::assert_snapshot!(read(twice, Notation::Json).expect_err("twice"), @"line 1, column 69: labels.a: must be there only once");
}

#[test]
fn texts_may_be_in_any_script() {
    for text in ["zeit – größe", "训练", "обучение", "تدريب", "प्रशिक्षण", "e\u{301}", "👩‍🔬", "a\u{a0}b"]
    {
        let file = format!(
            "name: {text}\ncommand: [echo, {text}]\nenvironment: {{ {text}: {text} }}\nlabels: {{ a: {text} }}\n\
                            virtual_card: {{ tflops: 1 }}\n"
        );
        let spec = yaml(&file).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!([&spec.name, &spec.command[1], &spec.environment[text], &spec.labels["a"]], [text; 4]);
    }
}

#[test]
fn nothing_in_a_list_is_refused_and_not_a_text() {
    for (field, lines) in [
        ("virtual_card.models[1]", "virtual_card: { tflops: 1, models: [a, null] }\n"),
        ("virtual_card.vendors[0]", "virtual_card: { tflops: 1, vendors: [~] }\n"),
        ("affinity.data[0]", "virtual_card: { tflops: 1 }\naffinity: { data: [null] }\n"),
        (
            "affinity.preferred[0].key",
            "virtual_card: { tflops: 1 }\naffinity: { preferred: [{ key: null, value: a }] }\n",
        ),
    ] {
        let said = yaml(&format!("command: [a]\n{lines}")).expect_err(lines);
        assert!(said.contains(&format!("{field}: says nothing")), "{said}");
    }
}

#[test]
fn a_word_that_is_none_is_quoted_as_it_was_written() {
    let toml = |value: &str| {
        let text = format!("command = ['a']\nvirtual_card = {{ tflops = 1, span = {value} }}\n");
        read(&text, Notation::Toml).expect_err(value).to_string()
    };
    for value in ["7", "0x10", "1.50", "true"] {
        let said = toml(value);
        assert!(
            said.contains(&format!("virtual_card.span: must be one of card, node, pool, is \"{value}\"")),
            "{said}"
        );
    }
    let said = toml("['card']");
    assert!(said.contains("virtual_card.span: invalid type: sequence, expected a word"), "{said}");
    let json = "{\"command\": [\"a\"], \"virtual_card\": {\"tflops\": 1, \"span\": 1.5}}";
    let said = read(json, Notation::Json).expect_err("no word").to_string();
    assert!(said.contains("must be one of card, node, pool, is \"1.5\""), "{said}");
}

#[test]
fn a_script_that_paints_is_not_deep() {
    let text = format!("script: |\n{}virtual_card: {{ tflops: 1 }}\n", "  printf '\\033[1m'\n".repeat(1_000));
    let spec = yaml(&text).expect("a good file");
    assert_eq!(spec.script.lines().count(), 1_000);
}

#[test]
fn what_is_too_deep_is_refused_before_it_is_read() {
    let deep = |notation: Notation, open: &str, close: &str, levels: usize| {
        let (open, close) = (open.repeat(levels), close.repeat(levels));
        let text = match notation {
            Notation::Yaml => format!("command: {open}{close}\n"),
            Notation::Toml => format!("command = {open}{close}\n"),
            Notation::Json => format!("{{\"command\": {open}{close}}}"),
        };
        read(&text, notation).expect_err("too deep").to_string()
    };
    for (notation, levels) in [
        (Notation::Toml, 200),
        (Notation::Json, 200),
        (Notation::Yaml, 100_000),
        (Notation::Toml, 100_000),
        (Notation::Json, 100_000),
    ] {
        let said = deep(notation, "[", "]", levels);
        assert!(said.contains("no field of a job file has lists or mappings more than four deep"), "{said}");
    }
    let said = deep(Notation::Yaml, "[", "]", 90);
    assert!(said.contains("command[0]: invalid type: sequence"), "{said}");
    for (open, close) in [("{a: ", "}"), ("[", "]"), ("?[", "]"), ("{\n", "}")] {
        let said = deep(Notation::Yaml, open, close, 100_000);
        assert!(said.contains("brackets open at once") && said.starts_with("line "), "{said}");
    }
    let dashes = yaml(&format!("command:\n  {}a\n", "- ".repeat(100_000))).expect_err("too deep");
    assert!(dashes.contains("command[0]: invalid type: sequence"), "{dashes}");
}
