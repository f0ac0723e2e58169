//! The Helm chart: rendered with its defaults it is the plain manifest, and every object is what
//! Kubernetes takes, as far as that can be told without a cluster.
//!
//! The templates use a small part of Helm's language, and this file renders that part: values,
//! `quote`-less strings, `if`, `if not`, `range`, `add`, `toYaml … | nindent` and `nindent`.
//! `CUMUX_BLESS=1` writes the plain manifests.
#![allow(clippy::unwrap_used, missing_docs)]

use cumux_artifacts::check::{self, Kind};
use cumux_artifacts::plugin;
use saphyr::{LoadableYamlNode as _, Scalar, Yaml, YamlEmitter};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn load(text: &str) -> Vec<Yaml<'_>> {
    Yaml::load_from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn at<'a>(value: &'a Yaml<'a>, path: &str) -> &'a Yaml<'a> {
    path.split('.').fold(value, |value, name| value.as_mapping_get(name).unwrap_or_else(|| panic!("no {name} of {path}")))
}

fn scalar(value: &Yaml<'_>) -> String {
    match value {
        Yaml::Value(Scalar::String(text)) => text.to_string(),
        Yaml::Value(Scalar::Boolean(truth)) => truth.to_string(),
        Yaml::Value(Scalar::Integer(number)) => number.to_string(),
        other => panic!("no scalar: {other:?}"),
    }
}

/// What a template is rendered with: the values, with those in `set` in place of the defaults, and
/// the variables of the `range` that is under way.
struct Values<'a> {
    defaults: &'a Yaml<'a>,
    set: Vec<(&'a str, Yaml<'a>)>,
}

/// A variable of a `range`, with its dollar sign, and its value.
type Variable = (String, String);

impl<'a> Values<'a> {
    fn of(defaults: &'a Yaml<'a>, set: &'a [(&'a str, &'a str)]) -> Self {
        let value = |text: &'a str| load(text).into_iter().next().unwrap_or_else(|| Yaml::Value(Scalar::String("".into())));
        Self { defaults, set: set.iter().map(|(name, text)| (*name, value(text))).collect() }
    }

    /// The value of `.Values.PATH`. In a `range` Helm's `.` is something else: only `$` leads to
    /// the values.
    fn value(&self, expression: &str, variables: &[Variable]) -> &Yaml<'a> {
        let path = match expression.strip_prefix("$.Values.") {
            Some(path) => path,
            None if !variables.is_empty() => panic!("{expression} in a range: write $.Values"),
            None => expression.strip_prefix(".Values.").unwrap_or_else(|| panic!("the chart's tests do not know {expression}")),
        };
        self.set.iter().find(|(name, _)| *name == path).map_or_else(|| at(self.defaults, path), |(_, value)| value)
    }

    fn expression(&self, expression: &str, variables: &[Variable]) -> String {
        let mut parts = expression.split('|').map(str::trim);
        let first = parts.next().unwrap();
        let mut text = match first.split_once(' ') {
            Some(("toYaml", path)) => {
                let mut out = String::new();
                let mut emitter = YamlEmitter::new(&mut out);
                emitter.dump(self.value(path, variables)).unwrap();
                out.trim_start_matches("---\n").trim_end().to_owned()
            }
            Some(("add", both)) => both.split(' ').map(|one| self.expression(one, variables).parse::<u64>().unwrap()).sum::<u64>().to_string(),
            Some(_) => panic!("the chart's tests do not know {{{{ {expression} }}}}"),
            None if first == ".Release.Namespace" => "cumux".to_owned(),
            None => match variables.iter().find(|(name, _)| name == first) {
                Some((_, value)) => value.clone(),
                None => scalar(self.value(first, variables)),
            },
        };
        for part in parts {
            let count: usize = part.strip_prefix("nindent ").unwrap_or_else(|| panic!("{part}")).parse().unwrap();
            let indent = " ".repeat(count);
            text = text.trim_end().lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("\n{indent}{line}") }).collect();
        }
        text
    }

    /// Whether an `if` with this condition holds: what is empty is false.
    fn holds(&self, condition: &str, variables: &[Variable]) -> bool {
        if let Some(condition) = condition.strip_prefix("not ") {
            return !self.holds(condition, variables);
        }
        match self.value(condition, variables) {
            Yaml::Sequence(items) => !items.is_empty(),
            other => !["", "false", "0"].contains(&scalar(other).as_str()),
        }
    }

    fn render(&self, template: &str) -> String {
        let lines: Vec<&str> = template.lines().collect();
        let mut out = String::new();
        self.render_lines(&lines, &[], &mut out);
        out
    }

    fn render_lines(&self, lines: &[&str], variables: &[Variable], out: &mut String) {
        let mut at = 0;
        while let Some(line) = lines.get(at) {
            at += 1;
            let inner = line.trim().strip_prefix("{{- ").and_then(|rest| rest.strip_suffix(" }}"));
            let block = inner.filter(|inner| inner.starts_with("if ") || inner.starts_with("range "));
            match (block, inner) {
                (Some(block), _) => {
                    let end = at + end_of(&lines[at..]);
                    let body = &lines[at..end];
                    at = end + 1;
                    match block.split_once(' ').unwrap() {
                        ("if", condition) if self.holds(condition, variables) => self.render_lines(body, variables, out),
                        ("range", head) => self.render_range(head, body, variables, out),
                        _ => {}
                    }
                }
                (None, Some("end")) => panic!("an end without a beginning"),
                // `{{-` takes the line end before it away, and `nindent` begins with one.
                (None, Some(inner)) => {
                    out.pop();
                    out.push_str(&self.expression(inner, variables));
                    out.push('\n');
                }
                (None, None) => {
                    let mut rest = *line;
                    while let Some((before, after)) = rest.split_once("{{ ") {
                        let (inner, after) = after.split_once(" }}").unwrap();
                        out.push_str(before);
                        out.push_str(&self.expression(inner, variables));
                        rest = after;
                    }
                    out.push_str(rest);
                    out.push('\n');
                }
            }
        }
    }

    /// `range $index, $item := PATH`.
    fn render_range(&self, head: &str, body: &[&str], variables: &[Variable], out: &mut String) {
        let (names, path) = head.split_once(" := ").unwrap();
        let (index, item) = names.split_once(", ").unwrap();
        let Yaml::Sequence(items) = self.value(path, variables) else { panic!("{path} is no list") };
        for (number, value) in items.iter().enumerate() {
            let mut inside = variables.to_vec();
            inside.extend([(index.to_owned(), number.to_string()), (item.to_owned(), scalar(value))]);
            self.render_lines(body, &inside, out);
        }
    }
}

/// The line of the `end` that belongs to a block whose body begins here.
fn end_of(lines: &[&str]) -> usize {
    let mut depth = 1;
    for (number, line) in lines.iter().enumerate() {
        let line = line.trim();
        depth += usize::from(line.starts_with("{{- if ") || line.starts_with("{{- range "));
        depth -= usize::from(line == "{{- end }}");
        if depth == 0 {
            return number;
        }
    }
    panic!("a block is not ended")
}

/// All objects of the chart.
fn chart(set: &[(&str, &str)]) -> Vec<String> {
    let text = fs::read_to_string(deploy().join("helm/cumux/values.yaml")).unwrap();
    let documents = load(&text);
    let values = Values::of(&documents[0], set);
    let names = ["account", "configmap", "daemonset", "dra"];
    let found = fs::read_dir(deploy().join("helm/cumux/templates")).unwrap().count();
    assert_eq!(found, names.len(), "a template is not tested");
    let render = |name: &&str| values.render(&fs::read_to_string(deploy().join(format!("helm/cumux/templates/{name}.yaml"))).unwrap());
    names.iter().map(render).flat_map(|text| text.split("---\n").map(str::to_owned).collect::<Vec<_>>()).filter(|text| !text.trim().is_empty()).collect()
}

fn golden(name: &str, values: &str, objects: &[String]) {
    let comment = format!("# The Helm chart in deploy/helm/cumux with {values}. kubectl create namespace cumux first.\n");
    let text = format!("{comment}{}", objects.join("---\n"));
    let path = deploy().join("kubernetes").join(name);
    if std::env::var_os("CUMUX_BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(there == text, "{name} is not what the chart makes: CUMUX_BLESS=1 cargo nextest run -p cumux-artifacts chart");
}

/// A node with two cards, and a daemon for each.
const PER_CARD: (&str, &str) = ("daemon.perCard", "[cuda:0, cuda:1]");

fn kind_of(text: &str) -> String {
    scalar(at(&load(text)[0], "kind"))
}

#[test]
fn the_plain_manifests_are_the_chart() {
    golden("device-plugin.yaml", "its defaults", &chart(&[]));
    golden("dra.yaml", "its defaults", &chart(&[("devicePlugin.enabled", "false"), ("dra.enabled", "true")]));
    golden("device-plugin-per-card.yaml", "daemon.perCard={cuda:0,cuda:1}", &chart(&[PER_CARD]));
}

#[test]
fn every_object_is_what_kubernetes_takes() {
    for set in [
        &[][..],
        &[("devicePlugin.enabled", "false"), ("dra.enabled", "true")],
        &[("daemon.device", "sim:h200,sim:h200"), ("daemon.hostPID", "true"), ("runtimeClassName", "")],
        &[("exporter.enabled", "true")],
        &[("exporter.enabled", "true"), ("devicePlugin.enabled", "false"), ("dra.enabled", "true")],
        &[PER_CARD, ("exporter.enabled", "true")],
        &[PER_CARD, ("devicePlugin.enabled", "false"), ("dra.enabled", "true")],
    ] {
        let objects = chart(set);
        let has_exporter = objects.concat().contains("\"cumux\", \"exporter\"");
        assert_eq!(has_exporter, set.contains(&("exporter.enabled", "true")));
        for text in &objects {
            match kind_of(text).as_str() {
                "DaemonSet" => check::file(Kind::DaemonSet, text).unwrap_or_else(|refusal| panic!("{refusal}\n{text}")),
                "ConfigMap" => {
                    let documents = load(text);
                    let data = at(&documents[0], "data").as_mapping().unwrap();
                    let (_, config) = data.iter().next().unwrap();
                    let config = plugin::read(&scalar(config)).unwrap();
                    assert_eq!(config.warnings, []);
                }
                "ServiceAccount" | "ClusterRole" | "ClusterRoleBinding" | "DeviceClass" => {}
                kind => panic!("the chart's tests do not know a {kind}"),
            }
        }
        // Nothing is privileged, and what is not needed is not asked for.
        let all = objects.concat();
        assert!(!all.contains("privileged"), "{all}");
        assert_eq!(all.contains("ClusterRole"), set.contains(&("dra.enabled", "true")), "only the driver talks to the API server");
        assert!(!all.contains("\"*\"") && !all.contains("secrets"), "{all}");
    }
}

#[test]
fn the_examples_are_pods() {
    let folder = deploy().join("kubernetes/examples");
    check::file(Kind::Pod, &fs::read_to_string(folder.join("pod.yaml")).unwrap()).unwrap();
    let claim = fs::read_to_string(folder.join("claim.yaml")).unwrap();
    let (template, pod) = claim.split_once("---\n").unwrap();
    check::file(Kind::Pod, pod).unwrap();
    assert_eq!(kind_of(template), "ResourceClaimTemplate");
}

#[test]
fn a_selector_without_its_label_is_refused() {
    let text = chart(&[]).into_iter().find(|text| kind_of(text) == "DaemonSet").unwrap();
    let wrong = text.replacen("      app.kubernetes.io/component: node\n  updateStrategy", "      app.kubernetes.io/component: other\n  updateStrategy", 1);
    let refusal = check::file(Kind::DaemonSet, &wrong).unwrap_err();
    assert!(refusal.text.contains("app.kubernetes.io/component=other"), "{refusal}");
}

/// The containers of the chart's DaemonSet, each with its command, arguments and variables as text.
fn containers(set: &[(&str, &str)]) -> Vec<(String, String)> {
    let text = chart(set).into_iter().find(|text| kind_of(text) == "DaemonSet").unwrap();
    let documents = load(&text);
    let list = at(&documents[0], "spec.template.spec.containers").as_sequence().unwrap();
    let shown = |container: &Yaml<'_>| {
        let mut out = String::new();
        YamlEmitter::new(&mut out).dump(container).unwrap();
        (scalar(at(container, "name")), out)
    };
    list.iter().map(shown).collect()
}

#[test]
fn each_card_has_a_daemon_of_its_own_where_that_is_wanted() {
    let all = containers(&[PER_CARD, ("exporter.enabled", "true")]);
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["daemon-0", "daemon-1", "device-plugin", "exporter-0", "exporter-1"]);
    let of = |name: &str| &all.iter().find(|(known, _)| known == name).unwrap().1;
    for (card, other) in [(0, 1), (1, 0)] {
        let daemon = of(&format!("daemon-{card}"));
        assert!(daemon.contains(&format!("cuda:{card}")) && daemon.contains(&format!("/run/cumux/card-{card}")), "{daemon}");
        assert!(!daemon.contains(&format!("cuda:{other}")) && !daemon.contains(&format!("card-{other}")), "{daemon}");
        // Directories of two daemons never meet, and neither do their ports.
        let exporter = of(&format!("exporter-{card}"));
        assert!(exporter.contains(&format!("/run/cumux/card-{card}")) && exporter.contains(&(9456 + card).to_string()), "{exporter}");
        assert!(of("device-plugin").contains(&format!("--pipe=/run/cumux/card-{card}")), "{}", of("device-plugin"));
    }
    assert!(!of("device-plugin").contains("--pipe=/run/cumux\""), "{}", of("device-plugin"));
    let one = containers(&[]);
    assert_eq!(one.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["daemon", "device-plugin"]);
    assert!(one[1].1.contains("--pipe=/run/cumux") && !one[1].1.contains("card-"), "{}", one[1].1);
}

// The schema of the values ------------------------------------------------------------------------

/// What Helm's own check would refuse, for the words of JSON Schema that our schema uses.
fn refusal(schema: &Value, value: &Value, place: &str) -> Option<String> {
    for (word, wanted) in schema.as_object().unwrap() {
        let refused = match word.as_str() {
            "$schema" | "title" | "then" => None,
            "type" => {
                let is = match wanted.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_i64(),
                    other => panic!("the chart's tests do not know the type {other}"),
                };
                (!is).then(|| format!("{place} is no {wanted}"))
            }
            "enum" => (!wanted.as_array().unwrap().contains(value)).then(|| format!("{place} is none of {wanted}")),
            "const" => (wanted != value).then(|| format!("{place} is not {wanted}")),
            "minimum" => value.as_i64().filter(|number| *number < wanted.as_i64().unwrap()).map(|_| format!("{place} is too small")),
            "maximum" => value.as_i64().filter(|number| *number > wanted.as_i64().unwrap()).map(|_| format!("{place} is too large")),
            "minLength" => value.as_str().filter(|text| text.len() < count(wanted)).map(|_| format!("{place} is too short")),
            "minItems" => value.as_array().filter(|list| list.len() < count(wanted)).map(|_| format!("{place} has too few")),
            "maxItems" => value.as_array().filter(|list| list.len() > count(wanted)).map(|_| format!("{place} has too many")),
            "uniqueItems" => value.as_array().filter(|list| (1..list.len()).any(|i| list[..i].contains(&list[i]))).map(|_| format!("{place} has one twice")),
            "pattern" => value.as_str().filter(|text| !matches(wanted.as_str().unwrap(), text)).map(|_| format!("{place} is not like {wanted}")),
            "items" => value.as_array().and_then(|list| list.iter().find_map(|item| refusal(wanted, item, &format!("{place}[]")))),
            "properties" => {
                let known = wanted.as_object().unwrap();
                known.iter().find_map(|(name, schema)| refusal(schema, value.get(name)?, &format!("{place}.{name}")))
            }
            "additionalProperties" => {
                assert_eq!(*wanted, Value::Bool(false));
                let known = schema["properties"].as_object().unwrap();
                value.as_object().and_then(|map| map.keys().find(|name| !known.contains_key(*name))).map(|name| format!("{place}.{name} is unknown"))
            }
            "if" if refusal(wanted, value, place).is_none() => refusal(&schema["then"], value, place),
            "if" => None,
            other => panic!("the chart's tests do not know the word {other}"),
        };
        if refused.is_some() {
            return refused;
        }
    }
    None
}

fn count(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

/// The patterns of our schema, without a crate for regular expressions.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern {
        "^/" => text.starts_with('/'),
        "^(cuda:[0-9]+|sim:[a-z0-9:]+)$" => {
            let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
            let digits = !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
            let name = !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b':');
            (kind == "cuda" && digits) || (kind == "sim" && name)
        }
        other => panic!("the chart's tests do not know the pattern {other}"),
    }
}

fn json(value: &Yaml<'_>) -> Value {
    match value {
        Yaml::Mapping(map) => Value::Object(map.iter().map(|(name, value)| (scalar(name), json(value))).collect()),
        Yaml::Sequence(list) => list.iter().map(json).collect(),
        Yaml::Value(Scalar::Boolean(truth)) => Value::Bool(*truth),
        Yaml::Value(Scalar::Integer(number)) => Value::from(*number),
        other => Value::String(scalar(other)),
    }
}

/// Helm checks values by the schema before it renders: the defaults pass, and wrong ones are named.
#[test]
fn the_schema_takes_the_defaults_and_names_what_is_wrong() {
    let folder = deploy().join("helm/cumux");
    let schema: Value = serde_json::from_str(&fs::read_to_string(folder.join("values.schema.json")).unwrap()).unwrap();
    let text = fs::read_to_string(folder.join("values.yaml")).unwrap();
    let defaults = json(&load(&text)[0]);
    assert_eq!(refusal(&schema, &defaults, "values"), None);
    // Every default is known to the schema by name, and the schema knows no other.
    let known = schema["properties"].as_object().unwrap();
    let names: Vec<&String> = known.keys().filter(|name| *name != "global").collect();
    assert_eq!(names, defaults.as_object().unwrap().keys().collect::<Vec<_>>());
    let with = |path: &str, value: Value| {
        let mut values = defaults.clone();
        *values.pointer_mut(path).unwrap_or_else(|| panic!("{path}")) = value;
        refusal(&schema, &values, "values")
    };
    assert_eq!(with("/daemon/perCard", serde_json::json!(["cuda:0", "cuda:1"])), None);
    assert_eq!(with("/daemon/device", "sim:h200,sim:l4".into()), None);
    for (path, value, word) in [
        ("/daemon/perCard", serde_json::json!(["0"]), "values.daemon.perCard[]"),
        ("/daemon/perCard", serde_json::json!(["cuda:0", "cuda:0"]), "twice"),
        ("/daemon/perCard", serde_json::json!("cuda:0"), "no \"array\""),
        ("/daemon", serde_json::json!({"perCard": ["cuda:0"], "device": "cuda:1"}), "values.daemon.device is not \"\""),
        ("/daemon", serde_json::json!({"percard": []}), "values.daemon.percard is unknown"),
        ("/exporter/port", serde_json::json!(70000), "too large"),
        ("/exporter/enabled", serde_json::json!("yes"), "no \"boolean\""),
        ("/paths/pipe", serde_json::json!("run/cumux"), "values.paths.pipe"),
        ("/image/pullPolicy", serde_json::json!("Sometimes"), "none of"),
    ] {
        let said = with(path, value).unwrap_or_default();
        assert!(said.contains(word), "{path}: \"{said}\" does not say \"{word}\"");
    }
}
