//! YAML documents: reading with lines, and writing.

use saphyr::{LoadableYamlNode as _, Mapping, MarkedYaml, Scalar, Yaml, YamlData, YamlEmitter};

/// Why a file is refused, with the line.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("line {line}: {text}")]
pub struct Refusal {
    /// The first line is 1.
    pub line: usize,
    /// A sentence.
    pub text: String,
}

impl Refusal {
    pub(crate) fn new(line: usize, text: impl Into<String>) -> Self {
        Self { line, text: text.into() }
    }
}

/// A value in a document, with its place.
#[derive(Debug, Clone)]
pub(crate) struct Node<'a> {
    value: &'a MarkedYaml<'a>,
    /// As a person would name it: `sharing.mps.replicas`.
    path: String,
    /// The line of its key, or its own.
    line: usize,
}

/// Parses a document and hands its root to `with`.
pub(crate) fn with_root<T>(text: &str, with: impl FnOnce(Node<'_>) -> Result<T, Refusal>) -> Result<T, Refusal> {
    let documents = MarkedYaml::load_from_str(text).map_err(|error| Refusal::new(error.marker().line(), format!("this is no YAML: {}", error.info())))?;
    match &documents[..] {
        [root] => with(Node { value: root, path: String::new(), line: 1 }),
        [] => Err(Refusal::new(1, "the file is empty")),
        [_, second, ..] => Err(Refusal::new(second.span.start.line(), "the file has more than one document: put each into a file of its own")),
    }
}

impl<'a> Node<'a> {
    /// Where its value begins. For text over several lines that is its first line.
    pub(crate) fn value_line(&self) -> usize {
        self.value.span.start.line()
    }

    /// The line of its key, or its own.
    pub(crate) fn line(&self) -> usize {
        self.line
    }

    /// Its name for sentences.
    pub(crate) fn name(&self) -> &str {
        if self.path.is_empty() { "the document" } else { &self.path }
    }

    pub(crate) fn refuse<T>(&self, text: impl Into<String>) -> Result<T, Refusal> {
        Err(Refusal::new(self.line, text))
    }

    fn wrong<T>(&self, wanted: &str) -> Result<T, Refusal> {
        self.refuse(format!("{} is to be {wanted}", self.name()))
    }

    /// The entries of a mapping: names and values.
    pub(crate) fn entries(&self) -> Result<Vec<(String, Node<'a>)>, Refusal> {
        let YamlData::Mapping(mapping) = &self.value.data else { return self.wrong("a mapping") };
        let entry = |(key, value): (&'a MarkedYaml<'a>, &'a MarkedYaml<'a>)| {
            let line = key.span.start.line();
            let name = match &key.data {
                YamlData::Value(Scalar::String(name)) => name.to_string(),
                _ => return Err(Refusal::new(line, format!("a name in {} is no text", self.name()))),
            };
            let path = if self.path.is_empty() { name.clone() } else { format!("{}.{name}", self.path) };
            Ok((name, Node { value, path, line }))
        };
        mapping.iter().map(entry).collect()
    }

    /// The fields of a mapping that may have these and no others.
    pub(crate) fn fields(&self, known: &[&str]) -> Result<Fields<'a>, Refusal> {
        let entries = self.entries()?;
        for (name, node) in &entries {
            if !known.contains(&name.as_str()) {
                return node.refuse(format!("unknown field \"{name}\" in {}: it may have {}", self.name(), known.join(", ")));
            }
        }
        Ok(Fields { of: self.clone(), entries })
    }

    pub(crate) fn items(&self) -> Result<Vec<Node<'a>>, Refusal> {
        let YamlData::Sequence(items) = &self.value.data else { return self.wrong("a list") };
        let item = |(number, value): (usize, &'a MarkedYaml<'a>)| Node { value, path: format!("{}[{number}]", self.path), line: value.span.start.line() };
        Ok(items.iter().enumerate().map(item).collect())
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(self.value.data, YamlData::Sequence(_))
    }

    pub(crate) fn text(&self) -> Result<&'a str, Refusal> {
        match &self.value.data {
            YamlData::Value(Scalar::String(text)) => Ok(text.as_ref()),
            _ => self.wrong("text (quote it if it looks like a number)"),
        }
    }

    pub(crate) fn truth(&self) -> Result<bool, Refusal> {
        match &self.value.data {
            YamlData::Value(Scalar::Boolean(value)) => Ok(*value),
            _ => self.wrong("true or false"),
        }
    }

    pub(crate) fn number(&self) -> Result<i64, Refusal> {
        match &self.value.data {
            YamlData::Value(Scalar::Integer(value)) => Ok(*value),
            _ => self.wrong("a whole number"),
        }
    }

    /// Text out of a list of words.
    pub(crate) fn one_of(&self, words: &[&str]) -> Result<(), Refusal> {
        if words.contains(&self.text()?) { Ok(()) } else { self.wrong(&format!("one of {}", words.join(", "))) }
    }
}

/// The fields of a mapping.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    of: Node<'a>,
    entries: Vec<(String, Node<'a>)>,
}

impl<'a> Fields<'a> {
    pub(crate) fn get(&self, name: &str) -> Option<&Node<'a>> {
        self.entries.iter().find(|(its, _)| its == name).map(|(_, node)| node)
    }

    pub(crate) fn need(&self, name: &str) -> Result<&Node<'a>, Refusal> {
        self.get(name).ok_or_else(|| Refusal::new(self.of.line, format!("{} needs \"{name}\"", self.of.name())))
    }
}

/// A value to write.
pub(crate) type Value = Yaml<'static>;

pub(crate) fn text(text: impl Into<String>) -> Value {
    Yaml::Value(Scalar::String(text.into().into()))
}

pub(crate) fn number(value: u32) -> Value {
    Yaml::Value(Scalar::Integer(i64::from(value)))
}

pub(crate) fn truth(value: bool) -> Value {
    Yaml::Value(Scalar::Boolean(value))
}

pub(crate) fn list(items: impl IntoIterator<Item = Value>) -> Value {
    Yaml::Sequence(items.into_iter().collect())
}

pub(crate) fn map<N: Into<String>>(entries: impl IntoIterator<Item = (N, Value)>) -> Value {
    let mut mapping = Mapping::new();
    for (name, value) in entries {
        mapping.insert(text(name), value);
    }
    Yaml::Mapping(mapping)
}

/// Writes a document, with comments above it.
pub(crate) fn write(comments: &[&str], value: &Value) -> String {
    let mut out = String::new();
    let mut emitter = YamlEmitter::new(&mut out);
    emitter.multiline(true);
    // Writing to a String does not fail; if it did, the check would refuse what is there.
    let _ = emitter.dump(value);
    let body = out.strip_prefix("---\n").unwrap_or(&out);
    let comments: String = comments.iter().map(|line| format!("# {line}\n")).collect();
    format!("{comments}{}\n", body.trim_end())
}
