//! The image of a real dump in which one process was made somebody else, by an edit of its own file: nothing of it is
//! restored, and nothing is opened or changed for it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field};

use super::counting::{Counting, Held, put_link, secret};

/// The number of the field of a thread's identity in the message of a thread, and of that one in an image (`core.proto`
/// of CRIU).
const IDENTITY: [u32; 2] = [5, 10];
/// The two numbers at the start of an image.
const HEAD: usize = 8;

/// The message with this number, and no other, in the field at the end of a path of field numbers.
fn with_number(message: &[u8], path: &[u32], number: u64) -> Vec<u8> {
    let mut rest = message;
    let mut changed = Vec::new();
    while !rest.is_empty() {
        let whole = rest;
        let (field, kind) = decode_key(&mut rest).expect("a message");
        let mut value = rest;
        skip_field(kind, field, &mut rest, DecodeContext::default()).expect("a message");
        match path {
            [last] if field == *last => {}
            [first, deeper @ ..] if field == *first => {
                decode_varint(&mut value).expect("a message");
                let inner = with_number(&value[..value.len() - rest.len()], deeper, number);
                encode_key(field, kind, &mut changed);
                encode_varint(inner.len() as u64, &mut changed);
                changed.extend(inner);
            }
            _ => changed.extend(&whole[..whole.len() - rest.len()]),
        }
    }
    if let [last] = path {
        encode_key(*last, WireType::Varint, &mut changed);
        encode_varint(number, &mut changed);
    }
    changed
}

/// The image of one thread, which has one message, with another number in its identity.
fn edited(image: &[u8], field: u32, number: u64) -> Vec<u8> {
    let message = with_number(&image[HEAD + 4..], &[IDENTITY[0], IDENTITY[1], field], number);
    let length = u32::try_from(message.len()).expect("it is short").to_le_bytes();
    [&image[..HEAD], &length, &message].concat()
}

/// The files of a folder with what they hold.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(folder).expect("there").map(|entry| entry.expect("there").path());
    files.map(|file| (file.clone(), fs::read(file).expect("readable"))).collect()
}

#[test]
fn an_image_in_which_one_process_became_somebody_else_is_refused_and_opens_nothing() {
    let program = Counting::dumped_with(&Held { opens: "sleep 1000 & exec 5>>$P/log", uses: "echo step >&5" });
    let image = program.dumped.folder.path().join("checkpoint/image");
    // Of the first process and its child, which is the only one that stays.
    let child = image.join(format!("core-{}.img", cores(&image)[1]));
    let honest = fs::read(&child).expect("it was dumped");
    let (log, hidden) = (program.in_shared("log"), program.in_secret("file"));
    let kept = secret(&hidden);
    put_link(&hidden, &log);
    for (field, number, why) in [
        (1, 0, "is user 0"),
        (3, 0, "is user 0"),
        (5, 0, "is user 0"),
        (7, 0, "is user 0"),
        (2, 0, "is of group 0"),
        (4, 0, "is of group 0"),
        (14, 6, "is of group 6"),
        (9, 1, "has rights that no worker is given"),
        (10, 1 << 21, "has rights that no worker is given"),
        (11, 1 << 7, "has rights that no worker is given"),
        (19, 1, "has rights that no worker is given"),
        (18, 0, "has rights that no worker is given"),
    ] {
        fs::write(&child, edited(&honest, field, number)).expect("writable");
        let before = contents(&image);
        program.is_refused(why);
        assert!(before == contents(&image), "field {field}: the image is as it was");
        assert_eq!(fs::read_to_string(&hidden).expect("there"), kept, "field {field}");
    }
    fs::write(&child, honest).expect("writable");
    program.is_refused_for_link(&log);
    fs::rename(log.with_extension("before"), &log).expect("it is there");
    program.goes_on();
}

/// The numbers of the processes and threads of an image, in their order.
fn cores(image: &Path) -> Vec<u32> {
    let names = contents(image).into_keys().filter_map(|path| path.file_stem()?.to_str().map(str::to_owned));
    let mut numbers: Vec<u32> = names.filter_map(|name| name.strip_prefix("core-")?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}
