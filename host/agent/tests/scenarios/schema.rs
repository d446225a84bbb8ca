//! Checks a document against a JSON Schema, for the keywords that our schemas have. A keyword that is not known here is
//! an error, so that nothing is left unchecked in silence.

use serde_json::Value;

/// What is wrong with a document, with its place.
pub(crate) fn validate(schema: &Value, document: &Value) -> Result<(), String> {
    Checking { root: schema }.check(schema, document, "")
}

struct Checking<'a> {
    root: &'a Value,
}

impl Checking<'_> {
    fn check(&self, schema: &Value, found: &Value, place: &str) -> Result<(), String> {
        let keywords = match schema {
            Value::Bool(true) => return Ok(()),
            Value::Object(keywords) => keywords,
            other => return Err(format!("{place}: {other} is no schema")),
        };
        for (keyword, wanted) in keywords {
            let right = match keyword.as_str() {
                "$schema" | "$defs" | "title" | "description" | "default" | "format" => true,
                "$ref" => {
                    let pointer = wanted.as_str().and_then(|text| text.strip_prefix('#')).unwrap();
                    self.check(self.root.pointer(pointer).unwrap(), found, place)?;
                    true
                }
                "type" => match wanted {
                    Value::Array(types) => types.iter().any(|wanted| is_type(found, wanted)),
                    one => is_type(found, one),
                },
                "const" => found == wanted,
                "enum" => wanted.as_array().unwrap().contains(found),
                "minimum" => found.as_f64().is_none_or(|number| number >= wanted.as_f64().unwrap()),
                "maximum" => found.as_f64().is_none_or(|number| number <= wanted.as_f64().unwrap()),
                "oneOf" => {
                    let schemas = wanted.as_array().unwrap().iter();
                    schemas.filter(|schema| self.check(schema, found, place).is_ok()).count() == 1
                }
                "anyOf" => wanted.as_array().unwrap().iter().any(|schema| self.check(schema, found, place).is_ok()),
                "required" => wanted.as_array().unwrap().iter().all(|name| found.get(name.as_str().unwrap()).is_some()),
                "properties" => {
                    let known = wanted.as_object().unwrap();
                    // A member that the schema doesn't know is not documented.
                    if let Some(unknown) =
                        found.as_object().and_then(|all| all.keys().find(|key| !known.contains_key(*key)))
                    {
                        return Err(format!("{place}: {unknown} is not in the schema"));
                    }
                    for (name, schema) in known {
                        if let Some(found) = found.get(name) {
                            self.check(schema, found, &format!("{place}/{name}"))?;
                        }
                    }
                    true
                }
                "additionalProperties" => wanted == &Value::Bool(true),
                "items" => {
                    for (index, item) in found.as_array().into_iter().flatten().enumerate() {
                        self.check(wanted, item, &format!("{place}/{index}"))?;
                    }
                    true
                }
                unknown => return Err(format!("{place}: the keyword {unknown} is not known here")),
            };
            if !right {
                return Err(format!("{place}: {found} is not as `{keyword}: {wanted}` says"));
            }
        }
        Ok(())
    }
}

fn is_type(found: &Value, wanted: &Value) -> bool {
    match wanted.as_str().unwrap() {
        "null" => found.is_null(),
        "boolean" => found.is_boolean(),
        "integer" => found.is_i64() || found.is_u64(),
        "number" => found.is_number(),
        "string" => found.is_string(),
        "array" => found.is_array(),
        "object" => found.is_object(),
        other => panic!("{other} is no type"),
    }
}
