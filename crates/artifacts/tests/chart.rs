//! The Helm chart: rendered with its defaults it is the plain manifest, and every object is what
//! Kubernetes takes, as far as that can be told without a cluster.
//!
//! The templates use a small part of Helm's language, and this file renders that part: values,
//! `quote`-less strings, `if`, `toYaml … | nindent` and `nindent`. `CUMUX_BLESS=1` writes the plain
//! manifests.
#![allow(clippy::unwrap_used, missing_docs)]

use cumux_artifacts::check::{self, Kind};
use cumux_artifacts::plugin;
use saphyr::{LoadableYamlNode as _, Scalar, Yaml, YamlEmitter};
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

/// Values, with those in `set` in place of the defaults.
struct Values<'a> {
    defaults: &'a Yaml<'a>,
    set: &'a [(&'a str, &'a str)],
}

impl Values<'_> {
    fn text(&self, path: &str) -> String {
        self.set.iter().find(|(name, _)| *name == path).map_or_else(|| scalar(at(self.defaults, path)), |(_, value)| (*value).to_owned())
    }

    fn expression(&self, expression: &str) -> String {
        let mut parts = expression.split('|').map(str::trim);
        let first = parts.next().unwrap();
        let (path, is_yaml) = first.strip_prefix("toYaml ").map_or((first, false), |path| (path, true));
        let mut text = match path.strip_prefix(".Values.") {
            Some(path) if is_yaml => {
                let mut out = String::new();
                let mut emitter = YamlEmitter::new(&mut out);
                emitter.dump(at(self.defaults, path)).unwrap();
                out.trim_start_matches("---\n").trim_end().to_owned()
            }
            Some(path) => self.text(path),
            None if path == ".Release.Namespace" => "cumux".to_owned(),
            None => panic!("the chart's tests do not know {{{{ {expression} }}}}"),
        };
        for part in parts {
            let count: usize = part.strip_prefix("nindent ").unwrap_or_else(|| panic!("{part}")).parse().unwrap();
            let indent = " ".repeat(count);
            text = text.trim_end().lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("\n{indent}{line}") }).collect();
        }
        text
    }

    fn render(&self, template: &str) -> String {
        let mut out = String::new();
        // Whether each open `if` holds.
        let mut open: Vec<bool> = Vec::new();
        for line in template.lines() {
            let inner = line.trim().strip_prefix("{{- ").and_then(|rest| rest.strip_suffix(" }}"));
            match inner {
                Some("end") => drop(open.pop().unwrap()),
                Some(inner) if inner.starts_with("if ") => {
                    let value = self.text(inner[3..].trim().strip_prefix(".Values.").unwrap());
                    open.push(!value.is_empty() && value != "false");
                }
                _ if open.contains(&false) => {}
                // `{{-` takes the line end before it away, and `nindent` begins with one.
                Some(inner) => {
                    out.pop();
                    out.push_str(&self.expression(inner));
                    out.push('\n');
                }
                None => {
                    let mut rest = line;
                    while let Some((before, after)) = rest.split_once("{{ ") {
                        let (inner, after) = after.split_once(" }}").unwrap();
                        out.push_str(before);
                        out.push_str(&self.expression(inner));
                        rest = after;
                    }
                    out.push_str(rest);
                    out.push('\n');
                }
            }
        }
        assert!(open.is_empty(), "an if is not ended");
        out
    }
}

/// All objects of the chart.
fn chart(set: &[(&str, &str)]) -> Vec<String> {
    let text = fs::read_to_string(deploy().join("helm/cumux/values.yaml")).unwrap();
    let documents = load(&text);
    let values = Values { defaults: &documents[0], set };
    let names = ["account", "configmap", "daemonset", "dra"];
    let found = fs::read_dir(deploy().join("helm/cumux/templates")).unwrap().count();
    assert_eq!(found, names.len(), "a template is not tested");
    let render = |name: &&str| values.render(&fs::read_to_string(deploy().join(format!("helm/cumux/templates/{name}.yaml"))).unwrap());
    names.iter().map(render).flat_map(|text| text.split("---\n").map(str::to_owned).collect::<Vec<_>>()).filter(|text| !text.trim().is_empty()).collect()
}

fn golden(name: &str, objects: &[String]) {
    let comment = "# The Helm chart in deploy/helm/cumux with its defaults. kubectl create namespace cumux first.\n";
    let text = format!("{comment}{}", objects.join("---\n"));
    let path = deploy().join("kubernetes").join(name);
    if std::env::var_os("CUMUX_BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(there == text, "{name} is not what the chart makes: CUMUX_BLESS=1 cargo nextest run -p cumux-artifacts chart");
}

fn kind_of(text: &str) -> String {
    scalar(at(&load(text)[0], "kind"))
}

#[test]
fn the_plain_manifests_are_the_chart() {
    golden("device-plugin.yaml", &chart(&[]));
    golden("dra.yaml", &chart(&[("devicePlugin.enabled", "false"), ("dra.enabled", "true")]));
}

#[test]
fn every_object_is_what_kubernetes_takes() {
    for set in [
        &[][..],
        &[("devicePlugin.enabled", "false"), ("dra.enabled", "true")],
        &[("daemon.device", "sim:h200,sim:h200"), ("daemon.hostPID", "true"), ("runtimeClassName", "")],
        &[("exporter.enabled", "true")],
        &[("exporter.enabled", "true"), ("devicePlugin.enabled", "false"), ("dra.enabled", "true")],
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
