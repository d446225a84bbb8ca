//! The schemas of the published custom resources, and the little of `OpenAPI` that they need: what is unknown is pruned,
//! what is wrong is named as the real API server names it.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::status::FieldError;

/// Site, of either group.
pub(crate) fn site() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        json!({"type": "object", "properties": {
            "spec": {"type": "object", "required": ["nodeCidrs", "podCidrAssignments"], "properties": {
                "nodeCidrs": strings(1),
                "podCidrAssignments": {"type": "array", "minItems": 1, "items": {
                    "type": "object", "required": ["cidrBlocks"], "properties": {
                        "cidrBlocks": strings(1),
                        "nodeBlockSizes": {"type": "object", "properties": {
                            "ipv4": {"type": "integer", "minimum": 1, "maximum": 32},
                            "ipv6": {"type": "integer", "minimum": 1, "maximum": 128},
                        }},
                        "assignmentEnabled": {"type": "boolean"},
                        "nodeRegex": strings(0),
                        "priority": {"type": "integer"},
                    }}},
                "manageCniPlugin": {"type": "boolean"},
                "nonMasqueradeCIDRs": strings(0),
                "localCidrs": strings(0),
                "tunnelProtocol": tunnel_protocol(),
                "tunnelMTU": tunnel_mtu(),
                "healthCheckSettings": health_check(),
                "components": anything(),
            }},
            "status": anything(),
        }})
    });
    &SCHEMA
}

/// `GatewayPool`.
pub(crate) fn gateway_pool() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        json!({"type": "object", "required": ["spec"], "properties": {
            "spec": {"type": "object", "required": ["nodeSelector"], "properties": {
                "nodeSelector": {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string"}},
                "type": {"type": "string", "enum": ["External", "Internal", ""]},
                "routedCidrs": strings(0),
                "tunnelProtocol": tunnel_protocol(),
                "tunnelMTU": tunnel_mtu(),
                "healthCheckSettings": health_check(),
            }},
            "status": {"type": "object", "properties": {
                "nodeCount": {"type": "integer"},
                "connectedSites": strings(0),
                "reachableSites": strings(0),
                "nodes": {"type": "array", "items": {
                    "type": "object", "required": ["name", "wireGuardPublicKey"], "properties": {
                        "name": {"type": "string"},
                        "siteName": {"type": "string"},
                        "wireGuardPublicKey": {"type": "string"},
                        "gatewayWireguardPort": {"type": "integer"},
                        "externalIPs": strings(0),
                        "internalIPs": strings(0),
                        "healthEndpoints": strings(0),
                        "podCIDRs": strings(0),
                    }}},
            }},
        }})
    });
    &SCHEMA
}

/// `GatewayPoolNode`.
pub(crate) fn gateway_pool_node() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        let hop = json!({"type": "object", "required": ["name", "type"], "properties": {
            "name": {"type": "string"}, "type": {"type": "string"},
        }});
        json!({"type": "object", "required": ["spec"], "properties": {
            "spec": {"type": "object", "required": ["gatewayPool", "nodeName"], "properties": {
                "gatewayPool": {"type": "string"},
                "nodeName": {"type": "string"},
                "site": {"type": "string"},
            }},
            "status": {"type": "object", "properties": {
                "lastUpdated": {"type": "string"},
                "routes": {"type": "object", "maxProperties": 1000, "additionalProperties": {
                    "type": "object", "required": ["type"], "properties": {
                        "type": {"type": "string"},
                        "source": hop,
                        "paths": {"type": "array", "maxItems": 100, "items": {"type": "array", "items": hop}},
                        "intermediateHops": {"type": "array", "items": hop},
                    }}},
            }},
        }})
    });
    &SCHEMA
}

fn strings(at_least: u64) -> Value {
    json!({"type": "array", "minItems": at_least, "items": {"type": "string"}})
}

fn tunnel_protocol() -> Value {
    json!({"type": "string", "enum": ["WireGuard", "IPIP", "GENEVE", "VXLAN", "None", "Auto"]})
}

fn tunnel_mtu() -> Value {
    json!({"type": "integer", "minimum": 576, "maximum": 9000})
}

fn health_check() -> Value {
    json!({"type": "object", "properties": {
        "enabled": {"type": "boolean"},
        "detectMultiplier": {"type": "integer", "minimum": 1, "maximum": 255},
        "receiveInterval": {"type": ["integer", "string"]},
        "transmitInterval": {"type": ["integer", "string"]},
    }})
}

/// A part that the agent never reads: kept as it comes.
fn anything() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Drops every field that the schema doesn't know, as the API server does before it validates.
pub(crate) fn prune(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if schema["x-kubernetes-preserve-unknown-fields"] == true {
                return;
            }
            let (known, others) = (&schema["properties"], &schema["additionalProperties"]);
            fields.retain(|name, _| known.get(name).is_some() || others.is_object());
            for (name, field) in fields {
                prune(known.get(name).unwrap_or(others), field);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| prune(&schema["items"], item)),
        _ => {}
    }
}

/// Checks `value` against `schema`. `prefix` is the field that `value` stands at (empty for a whole object): messages
/// name fields from there, causes from the top.
pub(crate) fn check(schema: &Value, value: &Value, prefix: &str, errors: &mut Vec<FieldError>) {
    Checker { prefix, errors }.check(schema, value, "");
}

struct Checker<'a> {
    prefix: &'a str,
    errors: &'a mut Vec<FieldError>,
}

impl Checker<'_> {
    fn check(&mut self, schema: &Value, value: &Value, path: &str) {
        let found = kind_of(value);
        let wanted: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            _ => vec![found],
        };
        if !wanted.contains(&found) {
            let detail = format!("{path} in body must be of type {}: {found:?}", wanted.join(","));
            self.errors.push(FieldError::wrong_type(self.field(path), found, detail));
            return;
        }
        if let Some(allowed) = schema["enum"].as_array()
            && !allowed.contains(value)
        {
            let allowed: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
            self.errors.push(FieldError::not_supported(self.field(path), value, &allowed));
        }
        match value {
            Value::Object(fields) => self.object(schema, fields, path),
            Value::Array(items) => self.array(schema, items, path),
            Value::Number(number) => self.number(schema, number, path),
            _ => {}
        }
    }

    fn object(&mut self, schema: &Value, fields: &Map<String, Value>, path: &str) {
        if let Some(limit) = schema["maxProperties"].as_u64()
            && fields.len() as u64 > limit
        {
            self.errors.push(FieldError::too_many(self.field(path), fields.len(), limit));
        }
        if let Some(limit) = schema["minProperties"].as_u64()
            && (fields.len() as u64) < limit
        {
            let detail = format!("{path} in body should have at least {limit} properties");
            self.errors.push(FieldError::invalid(self.field(path), fields.len(), detail));
        }
        for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(required) {
                self.errors.push(FieldError::required(self.field(&join(path, required)), ""));
            }
        }
        for (name, field) in fields {
            if let Some(schema) = schema["properties"].get(name).or_else(|| schema.get("additionalProperties")) {
                self.check(schema, field, &join(path, name));
            }
        }
    }

    fn array(&mut self, schema: &Value, items: &[Value], path: &str) {
        if let Some(limit) = schema["maxItems"].as_u64()
            && items.len() as u64 > limit
        {
            self.errors.push(FieldError::too_many(self.field(path), items.len(), limit));
        }
        if let Some(limit) = schema["minItems"].as_u64()
            && (items.len() as u64) < limit
        {
            let detail = format!("{path} in body should have at least {limit} items");
            self.errors.push(FieldError::invalid(self.field(path), items.len(), detail));
        }
        for (at, item) in items.iter().enumerate() {
            self.check(&schema["items"], item, &format!("{path}[{at}]"));
        }
    }

    fn number(&mut self, schema: &Value, number: &serde_json::Number, path: &str) {
        let Some(found) = number.as_f64() else { return };
        if let Some(limit) = schema["minimum"].as_f64()
            && found < limit
        {
            let detail = format!("{path} in body should be greater than or equal to {limit}");
            self.errors.push(FieldError::invalid(self.field(path), number, detail));
        }
        if let Some(limit) = schema["maximum"].as_f64()
            && found > limit
        {
            let detail = format!("{path} in body should be less than or equal to {limit}");
            self.errors.push(FieldError::invalid(self.field(path), number, detail));
        }
    }

    fn field(&self, path: &str) -> String {
        match (self.prefix, path) {
            (prefix, "") => prefix.to_owned(),
            ("", path) => path.to_owned(),
            (prefix, path) => format!("{prefix}.{path}"),
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() && n.as_f64().is_none_or(|n| n.fract() != 0.0) => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
