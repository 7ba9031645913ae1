use std::os::unix::fs::symlink;

use super::*;

/// A file in a folder, with these rights.
fn file(folder: &Path, name: &str, text: impl AsRef<[u8]>, mode: u32) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).expect("writable");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
    path
}

/// A program whose loader is not here: `true` of this host, with another letter in the loader's name. `None`: it has no
/// loader.
fn alien() -> Option<Vec<u8>> {
    let mut program = fs::read("/bin/true").ok().filter(|program| program.starts_with(b"\x7fELF"))?;
    let loader = program.windows(4).position(|word| word == b"/lib")?;
    program[loader + 3] = b'x';
    Some(program)
}

/// The sentence about a file that cannot be run; `None`: it can.
fn cause_of(path: &Path) -> Option<String> {
    let begin = || std::process::Command::new(path).spawn().map(|mut child| child.wait());
    // What other tests start meanwhile has copies of what is being written here, for a moment.
    let tries = std::iter::repeat_with(begin).take(50);
    let mut ended = tries.inspect(|_| std::thread::yield_now());
    let busy = |began: &io::Result<_>| matches!(began, Err(error) if error.raw_os_error() == Some(libc::ETXTBSY));
    let error = ended.find(|began| !busy(began)).unwrap_or_else(|| Err(Errno::ETXTBSY.into())).err()?;
    let error = Errno::from_raw(error.raw_os_error().expect("the system says so"));
    Some(Unrunnable { name: "it".to_owned(), paths: vec![path.to_owned()], error, too_long: None }.explained())
}

/// Whatever the system says, the sentence names what a person has to change.
#[test]
fn the_cause_is_named_as_a_person_would_look_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let script = |name: &str, line: &str| file(folder, name, format!("{line}\necho never\n"), 0o755);
    let plain = file(folder, "plain", "echo", 0o644);
    symlink(folder.join("nowhere"), folder.join("link")).expect("writable");
    let at = |path: &Path| path.display().to_string();
    for (path, words) in [
        (folder.join("no/such/thing"), format!("there is no `{}`", at(&folder.join("no")))),
        (folder.join("thing"), "is not on this node".to_owned()),
        (folder.join("link"), format!("is a link to `{}`, which cannot be reached", at(&folder.join("nowhere")))),
        (folder.to_owned(), "is a folder".to_owned()),
        (plain.clone(), "may not be executed by this job (its mode is 0644".to_owned()),
        (script("typo", "#!/usr/bin/pythn -u"), "its first line names the interpreter `/usr/bin/pythn`: ".to_owned()),
        (script("data", &format!("#! {}", at(&plain))), format!("interpreter `{}`: `{0}` may not be", at(&plain))),
        (script("windows", "#!/bin/sh\r"), "ends with a carriage return".to_owned()),
        (script("outer", &format!("#!{}", at(&folder.join("typo")))), "the interpreter `/usr/bin/pythn`: ".to_owned()),
    ] {
        let said = cause_of(&path).expect("it cannot be run");
        assert!(said.starts_with("`it` cannot be run: ") && said.contains(&words), "{words:?} is not in {said:?}");
    }
}

/// `true` of this host, with another kind of machine in its head.
fn of_another_machine() -> Vec<u8> {
    let mut program = fs::read("/bin/true").expect("it is a program");
    program[18] = if ARCH == "aarch64" { 62 } else { 183 };
    program
}

#[test]
fn bytes_that_are_not_what_they_seem_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let utf_16 = "#!/bin/sh\necho never\n".encode_utf16().flat_map(u16::to_le_bytes);
    let utf_16: Vec<u8> = [0xFF, 0xFE].into_iter().chain(utf_16).collect();
    let alien = file(folder, "alien", of_another_machine(), 0o755);
    let other = if ARCH == "aarch64" { "x86_64" } else { "aarch64" };
    let of_alien = format!("is a program for {other} machines, and this node is {ARCH}");
    let long = format!("#!/{}\n", "x/".repeat(200));
    let round = folder.join("round");
    for (path, words) in [
        (file(folder, "empty", "", 0o755), "`{}` is empty"),
        (file(folder, "marked", "\u{feff}#!/bin/sh\necho never\n", 0o755), "`{}` begins with a byte order mark"),
        (file(folder, "wide", utf_16, 0o755), "`{}` is text in UTF-16; save it as UTF-8"),
        (file(folder, "data", b"PK\x03\x04\0\0", 0o755), "`{}` begins with bytes that are neither text nor a program"),
        (file(folder, "windows", b"MZ\x90\0", 0o755), "`{}` is a program for Windows"),
        (
            file(folder, "part", b"\x7fELF\x02\x01\x01", 0o755),
            "`{}` begins as a program of this system, and is damaged",
        ),
        (file(folder, "nobody", "#!\necho never\n", 0o755), "its first line names no interpreter"),
        (file(folder, "long", long, 0o755), "its first line is longer than the 256 bytes"),
        (file(folder, "round", format!("#!{}\n", round.display()), 0o755), "its interpreter is a script, and so on"),
        (file(folder, "through", format!("#!{}\n", alien.display()), 0o755), of_alien.as_str()),
        (alien.clone(), of_alien.as_str()),
    ] {
        let said = cause_of(&path).expect("it cannot be run");
        let words = words.replace("{}", &path.display().to_string());
        assert!(said.starts_with("`it` cannot be run: ") && said.contains(&words), "{words:?} is not in {said:?}");
    }
    assert_eq!(not_for_shell(b"echo MZ\n"), None, "it is a script");
}

#[test]
fn what_is_too_long_is_named() {
    let text = |text: String| CString::new(text).expect("no NUL");
    let (short, long) = (text("echo".to_owned()), text("x".repeat(140_000)));
    let said = too_long(&[short.clone(), long], &[]);
    assert!(
        said.starts_with("the argument that begins with `xxxx") && said.contains("has 140000 bytes, and"),
        "{said}"
    );
    let said = too_long(std::slice::from_ref(&short), &[text(format!("BIG={}", "y".repeat(140_000)))]);
    assert!(said.starts_with("the variable `BIG` has 140004 bytes, and 131071 are the most"), "{said}");
    let many: Vec<_> = (0..100).map(|number| text(format!("V{number}={}", "z".repeat(100_000 + number)))).collect();
    let said = too_long(&[short], &many);
    assert!(said.contains("bytes together") && said.contains("the variable `V99`, has 100103"), "{said}");
}

#[test]
fn the_part_of_a_folder_that_is_in_the_way_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let plain = file(folder, "plain", "", 0o644);
    symlink(folder.join("nowhere"), folder.join("link")).expect("writable");
    let closed = folder.join("closed");
    fs::create_dir_all(closed.join("in")).expect("writable");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("it is ours");
    let at = |path: &Path| path.display().to_string();
    let mut cases = vec![
        (folder.join("no/such"), format!("there is no `{}`", at(&folder.join("no")))),
        (plain.clone(), format!("`{}` is no folder", at(&plain))),
        (plain.join("in"), format!("`{}` is no folder", at(&plain))),
        (
            folder.join("link/in"),
            format!("`{}` is a link to `{}`", at(&folder.join("link")), at(&folder.join("nowhere"))),
        ),
    ];
    let nobody = nix::unistd::geteuid().is_root();
    if nobody {
        cases.push((closed.join("in"), format!("`{}` may not be entered by this job", at(&closed))));
        cases.push((closed.clone(), format!("`{}` may not be entered by this job", at(&closed))));
    }
    for (path, words) in cases {
        let account = Account { uid: 65_534, gid: 65_534, groups: vec![], person: None };
        let said = not_entered(path, Errno::EACCES, nobody.then_some(account));
        assert!(said.contains(&words), "{words:?} is not in {said:?}");
    }
}

#[test]
fn what_is_there_is_never_said_to_be_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = file(folder.path(), "script", "#!/no/such\n", 0o755);
    let code = |path: &Path| Unrunnable::new(path.as_os_str(), None, &Errno::ENOENT.into()).exit_code();
    assert_eq!((code(&script), code(&folder.path().join("nothing"))), (126, 127));
}

#[test]
fn a_program_for_another_system_is_said_to_be_one() {
    let Some(alien) = alien() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let said = cause_of(&file(folder.path(), "alien", alien, 0o755)).expect("it cannot be run");
    assert!(said.contains("is a program for another system"), "{said}");
}

#[test]
fn what_is_being_written_is_said_to_be() {
    let folder = tempfile::tempdir().expect("a folder");
    let busy = folder.path().join("busy");
    fs::copy("/bin/true", &busy).expect("it is a program");
    let written = File::options().append(true).open(&busy).expect("it is ours");
    // Some systems run it all the same.
    if let Some(said) = cause_of(&busy) {
        assert!(said.contains("open for writing"), "{said}");
    }
    drop(written);
}

#[test]
fn a_name_without_a_folder_is_looked_for_in_each_of_its_path() {
    let paths = vec![PathBuf::from("/usr/bin/pythn"), PathBuf::from("/bin/pythn")];
    let said = Unrunnable { name: "pythn".to_owned(), paths, error: Errno::ENOENT, too_long: None }.explained();
    assert_eq!(said, "`pythn` cannot be run: it is in no folder of its PATH (`/usr/bin`, `/bin`)");
}

/// Somebody else's file says nothing to a job that may not read it.
#[test]
fn a_job_is_told_what_it_could_see_itself() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).expect("writable");
    let script = file(&closed, "script", "#!/secret/interpreter\n", 0o755);
    let account = Account { uid: 65_534, gid: 65_534, groups: vec![], person: None };
    let explained = || {
        let paths = vec![script.clone()];
        Unrunnable { name: "it".to_owned(), paths, error: Errno::EACCES, too_long: None }
            .explained_to(Some(account.clone()))
    };
    assert!(explained().contains("/secret/interpreter"), "{}", explained());
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("it is ours");
    let said = explained();
    assert!(said.contains(&format!("`{}` may not be entered by this job", closed.display())), "{said}");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).expect("it is ours");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o711)).expect("it is ours");
    assert!(!explained().contains("secret"), "it may be run and not read: {}", explained());
    assert!(fs::read(&script).is_ok(), "this thread has the rights that it had");
}
