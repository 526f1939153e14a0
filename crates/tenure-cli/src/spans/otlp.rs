//! Export by OTLP, as the variables of OpenTelemetry say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure::WorkerBuilder;
use tenure::store::SystemClock;
use tenure::trace::{Otlp, OtlpConfig, Sampling};
use tenure::worker::Source;

/// Time for the last spans at the end of the process.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// Path of spans below the address of a collector.
const PATH: &str = "/v1/traces";

/// A running export.
#[derive(Clone, Debug)]
pub(super) struct Export {
    otlp: Arc<Otlp>,
    sampling: Sampling,
}

impl Export {
    pub(super) fn of<S: Source>(&self, worker: WorkerBuilder<S>) -> WorkerBuilder<S> {
        let otlp = Arc::<Otlp>::clone(&self.otlp);
        worker.sampling(self.sampling).tracer(otlp)
    }

    pub(super) async fn stop(&self) {
        self.otlp.stop(STOP_TIMEOUT).await;
    }
}

/// Starts the export if these variables name a collector and are valid.
pub(super) fn start(variables: &BTreeMap<String, String>) -> Option<Export> {
    let started = plan(variables).and_then(|plan| {
        let Some((config, sampling)) = plan else {
            return Ok(None);
        };
        let otlp = Otlp::start(config).map_err(|problem| problem.to_string())?;
        Ok(Some(Export { otlp, sampling }))
    });
    started.unwrap_or_else(|problem| {
        tracing::warn!(problem, "no spans are exported");
        None
    })
}

/// The configuration of the export; `None`: it is off.
fn plan(variables: &BTreeMap<String, String>) -> Result<Option<(OtlpConfig, Sampling)>, String> {
    let get = |name: &str| variables.get(name).map(String::as_str);
    let of_traces = |rest: &str| {
        let own = get(&format!("OTEL_EXPORTER_OTLP_TRACES_{rest}"));
        own.or_else(|| get(&format!("OTEL_EXPORTER_OTLP_{rest}")))
    };
    let base = || get("OTEL_EXPORTER_OTLP_ENDPOINT");
    let base = || base().map(|address| format!("{}{PATH}", address.trim_end_matches('/')));
    let own = get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").map(str::to_owned);
    let Some(endpoint) = own.or_else(base) else {
        return Ok(None);
    };
    let is_disabled = get("OTEL_SDK_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true"));
    if is_disabled || get("OTEL_TRACES_EXPORTER").is_some_and(|name| name != "otlp") {
        return Ok(None);
    }
    if let Some(other) = of_traces("PROTOCOL").filter(|name| *name != "http/protobuf") {
        return Err(format!(
            "OTEL_EXPORTER_OTLP_PROTOCOL is {other:?}; expected \"http/protobuf\""
        ));
    }
    let mut config = OtlpConfig::new(endpoint, Arc::new(SystemClock));
    let headers = of_traces("HEADERS").map(|text| pairs("OTEL_EXPORTER_OTLP_HEADERS", text));
    config.headers = headers.transpose()?.unwrap_or_default();
    if let Some(text) = of_traces("TIMEOUT") {
        let wrong = |_| "OTEL_EXPORTER_OTLP_TIMEOUT is no number of milliseconds".to_owned();
        config.timeout = Duration::from_millis(text.parse().map_err(wrong)?);
    }
    config.resource = resource(get("OTEL_RESOURCE_ATTRIBUTES"), get("OTEL_SERVICE_NAME"))?;
    let sampling = sampling(get("OTEL_TRACES_SAMPLER"), get("OTEL_TRACES_SAMPLER_ARG"))?;
    Ok(Some((config, sampling)))
}

fn resource(
    attributes: Option<&str>,
    service: Option<&str>,
) -> Result<Vec<(String, String)>, String> {
    let version = env!("CARGO_PKG_VERSION");
    let own = [("service.name", "tenure"), ("service.version", version)];
    let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut all = BTreeMap::from(own);
    if let Some(text) = attributes {
        all.extend(pairs("OTEL_RESOURCE_ATTRIBUTES", text)?);
    }
    if let Some(service) = service {
        all.insert("service.name".to_owned(), service.to_owned());
    }
    Ok(all.into_iter().collect())
}

fn sampling(name: Option<&str>, share: Option<&str>) -> Result<Sampling, String> {
    let ratio = || {
        let Some(text) = share else { return Ok(1.0) };
        let ratio = text
            .parse()
            .ok()
            .filter(|share| (0.0..=1.0).contains(share));
        ratio.ok_or_else(|| format!("OTEL_TRACES_SAMPLER_ARG is {text:?}; expected 0 to 1"))
    };
    Ok(match name {
        None | Some("parentbased_always_on") => Sampling::by_parent(1.0),
        Some("parentbased_always_off") => Sampling::by_parent(0.0),
        Some("parentbased_traceidratio") => Sampling::by_parent(ratio()?),
        Some("always_on") => Sampling::by_ratio(1.0),
        Some("always_off") => Sampling::NEVER,
        Some("traceidratio") => Sampling::by_ratio(ratio()?),
        Some(other) => {
            return Err(format!(
                "OTEL_TRACES_SAMPLER is {other:?}; expected always_on, always_off, traceidratio, \
                 or one of them after parentbased_"
            ));
        }
    })
}

/// Reads `name=value,name=value`, with percent-encoded values. The error has no value.
fn pairs(variable: &str, text: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |part: &str| {
        let (name, value) = part.split_once('=')?;
        Some((name.trim().to_owned(), decoded(value.trim())?))
    };
    let parts = text.split(',').filter(|part| !part.trim().is_empty());
    let all: Option<Vec<_>> = parts.map(pair).collect();
    all.ok_or_else(|| format!("{variable} is malformed; expected name=value,name=value"))
}

/// Decodes `%20` and the like; `None` if the result is not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(variables: &[(&str, &str)]) -> Result<Option<(OtlpConfig, Sampling)>, String> {
        let owned = |(name, value): &(&str, &str)| {
            let name = format!("OTEL_{name}");
            (name, (*value).to_owned())
        };
        plan(&variables.iter().map(owned).collect())
    }

    #[test]
    fn without_a_collector_the_export_is_off() {
        let endpoint = ("EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        for variables in [
            &[("SERVICE_NAME", "mail"), ("TRACES_SAMPLER", "wrong")][..],
            &[endpoint, ("SDK_DISABLED", "TRUE")],
            &[endpoint, ("TRACES_EXPORTER", "none")],
        ] {
            assert!(
                planned(variables).is_ok_and(|plan| plan.is_none()),
                "{variables:?}"
            );
        }
    }

    #[test]
    fn the_variables_of_traces_come_before_the_general_ones() {
        let variables = [
            ("EXPORTER_OTLP_ENDPOINT", "http://a:4318/"),
            ("EXPORTER_OTLP_TRACES_TIMEOUT", "250"),
            ("EXPORTER_OTLP_TIMEOUT", "9"),
            ("EXPORTER_OTLP_HEADERS", "api-key=a%20b%3D, x=y"),
            ("RESOURCE_ATTRIBUTES", "service.name=other,team=mail"),
            ("SERVICE_NAME", "worker"),
            ("TRACES_SAMPLER", "parentbased_traceidratio"),
            ("TRACES_SAMPLER_ARG", "0.01"),
        ];
        let (config, sampling) = planned(&variables).unwrap().unwrap();
        assert_eq!(config.endpoint, "http://a:4318/v1/traces");
        assert_eq!(config.timeout, Duration::from_millis(250));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(config.headers, [pair("api-key", "a b="), pair("x", "y")]);
        assert!(config.resource.contains(&pair("service.name", "worker")));
        assert!(config.resource.contains(&pair("team", "mail")));
        assert_eq!(sampling, Sampling::by_parent(0.01));
        let own = ("EXPORTER_OTLP_TRACES_ENDPOINT", "http://b/spans");
        let (config, sampling) = planned(&[variables[0], own]).unwrap().unwrap();
        assert_eq!(config.endpoint, "http://b/spans", "taken as it is");
        assert_eq!(sampling, Sampling::by_parent(1.0));
    }

    #[test]
    fn a_mistake_is_named_without_a_secret() {
        let endpoint = ("EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        for (mistake, expected) in [
            (("EXPORTER_OTLP_PROTOCOL", "grpc"), "http/protobuf"),
            (("EXPORTER_OTLP_HEADERS", "canary"), "malformed"),
            (("EXPORTER_OTLP_HEADERS", "key=canary%2"), "malformed"),
            (("EXPORTER_OTLP_TIMEOUT", "soon"), "milliseconds"),
            (("TRACES_SAMPLER", "jaeger_remote"), "always_on"),
        ] {
            let problem = planned(&[endpoint, mistake]).expect_err(expected);
            assert!(problem.contains(expected), "{problem}");
            assert!(!problem.contains("canary"), "{problem}");
        }
        let ratio = ("TRACES_SAMPLER", "traceidratio");
        for share in ["2", "-1", "NaN", "half"] {
            assert!(planned(&[endpoint, ratio, ("TRACES_SAMPLER_ARG", share)]).is_err());
        }
    }
}
