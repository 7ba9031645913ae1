//! The settings of a command, each with its origin.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use tessera_api::metadata::{ACTOR, TRACEPARENT};
use tessera_client::{Address, Client, Headers, Settings};
use tonic::metadata::AsciiMetadataValue;

use super::contexts::{Context, Contexts};
use crate::args::{ClientArgs, Format};
use crate::exit::Exit;
use crate::failure::Failure;

/// The default address of a member.
const DEFAULT_SERVER: &str = "127.0.0.1:7400";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The origin of a setting, strongest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A flag of the command.
    Flag,
    /// A variable of the environment.
    Environment(String),
    /// A context of the file.
    Context(String),
    /// Nothing was said.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Environment(name) => write!(f, "environment ({name})"),
            Self::Context(name) => write!(f, "context {name}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A setting with its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved<T> {
    pub value: T,
    pub origin: Origin,
}

/// The settings that flags give; those they do not give are looked up elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    pub server: Vec<String>,
    pub context: Option<String>,
    pub contexts_file: Option<PathBuf>,
    pub timeout: Option<Duration>,
    pub output: Option<Format>,
}

impl From<&ClientArgs> for Wishes {
    fn from(args: &ClientArgs) -> Self {
        Self {
            server: args.server.clone(),
            context: args.context.clone(),
            contexts_file: args.contexts_file.clone(),
            timeout: args.timeout,
            output: args.output,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The members.
    pub server: Resolved<Vec<Address>>,
    /// Time for one request.
    pub timeout: Resolved<Duration>,
    pub output: Resolved<Format>,
    /// The context in use, if any.
    pub context: Option<Resolved<String>>,
    /// The file of contexts; `None` when the user has no configuration folder.
    pub contexts_file: Option<PathBuf>,
}

impl Connection {
    /// The file of contexts: flag, environment, or the place in the user's configuration folder.
    #[must_use]
    pub fn contexts_path(wishes: &Wishes, variable: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
        let named = wishes.contexts_file.clone().or_else(|| variable("TESSERA_CONFIG").map(PathBuf::from));
        named.or_else(|| {
            let folder = variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
            let folder = folder.or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".config")));
            folder.or_else(dirs::config_dir).map(|folder| folder.join("tessera").join("config.toml"))
        })
    }

    /// Finds every setting: flag, then environment, then context, then default. `variable` reads the environment.
    ///
    /// # Errors
    /// A [`Failure`] that names the origin of the setting that cannot be used.
    pub fn resolve(wishes: &Wishes, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let contexts_file = Self::contexts_path(wishes, variable);
        let contexts = match &contexts_file {
            Some(path) => Contexts::load(path)
                .map_err(|error| Failure::from_error(Exit::Usage, "the contexts cannot be read", &error))?,
            None => Contexts::default(),
        };
        let context = chosen_context(wishes, variable, &contexts)?;
        let from_context = |pick: &dyn Fn(&Context) -> Option<String>| {
            let name = &context.as_ref()?.value;
            pick(contexts.context.get(name)?).map(|value| (value, Origin::Context(name.clone())))
        };
        let from_variable = |name: &str| variable(name).map(|value| (value, Origin::Environment(name.to_owned())));

        let server = if wishes.server.is_empty() {
            let found = from_variable("TESSERA_SERVER").or_else(|| from_context(&|c| Some(c.server.join(","))));
            let (text, origin) = found.unwrap_or_else(|| (DEFAULT_SERVER.to_owned(), Origin::Default));
            (text.split(',').map(str::to_owned).collect(), origin)
        } else {
            (wishes.server.clone(), Origin::Flag)
        };
        let timeout = match wishes.timeout {
            Some(timeout) => Resolved { value: timeout, origin: Origin::Flag },
            None => match from_variable("TESSERA_TIMEOUT").or_else(|| from_context(&|c| c.timeout.clone())) {
                Some((text, origin)) => read_timeout(&text, origin)?,
                None => Resolved { value: DEFAULT_TIMEOUT, origin: Origin::Default },
            },
        };
        let output = match wishes.output {
            Some(format) => Resolved { value: format, origin: Origin::Flag },
            None => match from_variable("TESSERA_OUTPUT").or_else(|| from_context(&|c| c.output.clone())) {
                Some((text, origin)) => read_format(&text, origin)?,
                None => Resolved { value: Format::Table, origin: Origin::Default },
            },
        };
        Ok(Self { server: read_server(server)?, timeout, output, context, contexts_file })
    }
}

/// A client for a command: with the name of the person and a fresh trace context on every call.
///
/// # Errors
/// A [`Failure`] when no member is named.
pub fn connect(connection: &Connection) -> Result<Client, Failure> {
    let actor = actor()?;
    let trace = crate::trace::traceparent();
    let headers = Headers::new(move |headers| {
        headers.insert(ACTOR, actor.clone());
        if let Ok(value) = trace.parse() {
            headers.insert(TRACEPARENT, value);
        }
    });
    let timeout = connection.timeout.value;
    let settings = Settings { deadline: timeout, headers, ..Settings::default() };
    Client::new(&connection.server.value, settings)
        .map_err(|error| Failure::call("the control plane cannot be talked to", &error))
}

/// The name of the caller: TESSERA_ACTOR, or that of the user that this process belongs to. It is sent as it is,
/// in whatever script.
fn actor() -> Result<AsciiMetadataValue, Failure> {
    let user = || nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten().map(|user| user.name.into());
    let actor: OsString = std::env::var_os("TESSERA_ACTOR").or_else(user).unwrap_or_default();
    AsciiMetadataValue::try_from(actor.as_bytes()).map_err(|_| {
        Failure::new(
            Exit::Usage,
            "who calls cannot be said",
            "the name has an end of line or another control character",
        )
        .next("set TESSERA_ACTOR to a name without it")
    })
}

fn chosen_context(
    wishes: &Wishes,
    variable: &dyn Fn(&str) -> Option<String>,
    contexts: &Contexts,
) -> Result<Option<Resolved<String>>, Failure> {
    let named = wishes.context.clone().map(|name| (name, Origin::Flag)).or_else(|| {
        let name = "TESSERA_CONTEXT";
        variable(name).map(|value| (value, Origin::Environment(name.to_owned())))
    });
    let chosen = named.or_else(|| contexts.current.clone().map(|name| (name, Origin::Default)));
    let Some((value, origin)) = chosen else { return Ok(None) };
    if !contexts.context.contains_key(&value) {
        let known: Vec<&str> = contexts.context.keys().map(String::as_str).collect();
        let why =
            if known.is_empty() { "there are none".to_owned() } else { format!("there are: {}", known.join(", ")) };
        return Err(Failure::new(Exit::Usage, format!("there is no context `{value}`"), why)
            .next(format!("make it with `tessera context use {value} --server HOST:PORT`")));
    }
    Ok(Some(Resolved { value, origin }))
}

fn read_server((texts, origin): (Vec<String>, Origin)) -> Result<Resolved<Vec<Address>>, Failure> {
    let addresses: Result<Vec<Address>, _> = texts.iter().map(|text| text.parse()).collect();
    let value = addresses.map_err(|error| unusable("server", &origin, &error))?;
    Ok(Resolved { value, origin })
}

fn read_timeout(text: &str, origin: Origin) -> Result<Resolved<Duration>, Failure> {
    let value = humantime::parse_duration(text).map_err(|error| unusable("timeout", &origin, &error))?;
    Ok(Resolved { value, origin })
}

fn read_format(text: &str, origin: Origin) -> Result<Resolved<Format>, Failure> {
    let value = Format::from_str(text, true).map_err(|_| {
        let formats: Vec<String> = Format::value_variants()
            .iter()
            .filter_map(|format| format.to_possible_value())
            .map(|value| value.get_name().to_owned())
            .collect();
        unusable("output", &origin, &format!("`{text}` is not one of {}", formats.join(", ")))
    })?;
    Ok(Resolved { value, origin })
}

fn unusable(name: &str, origin: &Origin, why: &dyn fmt::Display) -> Failure {
    Failure::new(Exit::Usage, format!("the setting `{name}` (from: {origin}) cannot be used"), why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    struct Home {
        folder: tempfile::TempDir,
    }

    impl Home {
        fn with(text: &str) -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            std::fs::create_dir(folder.path().join("tessera")).expect("made");
            std::fs::write(folder.path().join("tessera/config.toml"), text).expect("written");
            Self { folder }
        }

        fn resolve(&self, wishes: &Wishes, variables: &[(&str, &str)]) -> Result<Connection, Failure> {
            let mut all: BTreeMap<String, String> =
                variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            all.insert("XDG_CONFIG_HOME".to_owned(), self.folder.path().display().to_string());
            Connection::resolve(wishes, &|name| all.get(name).cloned())
        }
    }

    const FILE: &str = "current = 'lab'\n[context.lab]\nserver = ['lab:1', 'lab:2']\ntimeout = '3s'\n\
                        [context.prod]\nserver = ['prod:1']\noutput = 'json'\n";

    fn servers(connection: &Connection) -> Vec<String> {
        connection.server.value.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_flag_goes_before_the_environment_before_the_context_before_the_default() {
        let place = Home::with(FILE);
        let flag = Wishes { server: vec!["flag:1".to_owned()], ..Wishes::default() };
        let variable = [("TESSERA_SERVER", "env:1,env:2")];

        let connection = place.resolve(&flag, &variable).expect("resolved");
        assert_eq!((servers(&connection), connection.server.origin), (vec!["flag:1".to_owned()], Origin::Flag));

        let connection = place.resolve(&Wishes::default(), &variable).expect("resolved");
        assert_eq!(servers(&connection), ["env:1", "env:2"]);
        assert_eq!(connection.server.origin, Origin::Environment("TESSERA_SERVER".to_owned()));

        let connection = place.resolve(&Wishes::default(), &[]).expect("resolved");
        assert_eq!(servers(&connection), ["lab:1", "lab:2"]);
        assert_eq!(connection.server.origin, Origin::Context("lab".to_owned()));
        assert_eq!(connection.timeout.value, Duration::from_secs(3));

        let connection = Home::with("").resolve(&Wishes::default(), &[]).expect("resolved");
        assert_eq!(
            (servers(&connection), connection.server.origin),
            (vec![DEFAULT_SERVER.to_owned()], Origin::Default)
        );
    }

    #[test]
    fn the_context_is_chosen_the_same_way() {
        let place = Home::with(FILE);
        let connection = place.resolve(&Wishes::default(), &[("TESSERA_CONTEXT", "prod")]).expect("resolved");
        assert_eq!(servers(&connection), ["prod:1"]);
        assert_eq!(connection.output.value, Format::Json);
        let wishes = Wishes { context: Some("lab".to_owned()), ..Wishes::default() };
        let connection = place.resolve(&wishes, &[("TESSERA_CONTEXT", "prod")]).expect("resolved");
        assert_eq!(servers(&connection), ["lab:1", "lab:2"]);
    }

    #[test]
    fn what_cannot_be_used_is_said_with_its_origin() {
        let place = Home::with(FILE);
        let error =
            |variables: &[(&str, &str)]| place.resolve(&Wishes::default(), variables).expect_err("refused").to_string();
        assert!(error(&[("TESSERA_SERVER", "nowhere")]).contains("`server` (from: environment (TESSERA_SERVER))"));
        assert!(
            error(&[("TESSERA_OUTPUT", "xml")]).contains("`xml` is not one of table, wide, json, yaml, jsonl, name")
        );
        assert!(error(&[("TESSERA_TIMEOUT", "soon")]).contains("`timeout`"));
        let unknown = error(&[("TESSERA_CONTEXT", "prdo")]);
        assert!(unknown.contains("there are: lab, prod") && unknown.contains("tessera context use prdo"), "{unknown}");
    }
}
