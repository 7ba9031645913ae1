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
    Some(Unrunnable { name: "it".to_owned(), paths: vec![path.to_owned()], error }.explained())
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
    let said = Unrunnable { name: "pythn".to_owned(), paths, error: Errno::ENOENT }.explained();
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
        Unrunnable { name: "it".to_owned(), paths, error: Errno::EACCES }.explained_to(Some(account.clone()))
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
