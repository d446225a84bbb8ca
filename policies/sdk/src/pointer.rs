//! JSON pointers (RFC 6901) into a settings document, by position: serde says how far it read, not what it was reading.
//! One small scan, and only for a document with a mistake, instead of code in every type that can be read.

/// A step into a document.
enum Step<'a> {
    /// In an object: the last key read, with its escapes; none before the first and after a comma.
    Key(Option<&'a str>),
    /// In an array: the index of the element.
    Index(usize),
}

/// The pointer to what the first `end` bytes of a JSON document were saying last.
pub(crate) fn before(json: &str, end: usize) -> String {
    let mut steps: Vec<Step<'_>> = Vec::new();
    let mut at = 0;
    while let Some(byte) = json.as_bytes().get(at).filter(|_| at < end) {
        let start = at;
        at += 1;
        match byte {
            b'{' => steps.push(Step::Key(None)),
            b'[' => steps.push(Step::Index(0)),
            b'}' | b']' => drop(steps.pop()),
            b',' => match steps.last_mut() {
                Some(Step::Key(key)) => *key = None,
                Some(Step::Index(index)) => *index += 1,
                None => {}
            },
            b'"' => {
                at += string_length(&json.as_bytes()[at..]);
                // The first string of a member is its key.
                if let Some(Step::Key(key @ None)) = steps.last_mut() {
                    *key = json.get(start..at);
                }
            }
            _ => {}
        }
    }
    steps.iter().map(segment).collect()
}

/// How many bytes a string takes after its opening quote, its closing one included.
fn string_length(rest: &[u8]) -> usize {
    let mut escaped = false;
    let closing = rest.iter().position(|byte| {
        let closes = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        closes
    });
    closing.map_or(rest.len(), |index| index + 1)
}

fn segment(step: &Step<'_>) -> String {
    match step {
        Step::Key(Some(quoted)) => {
            let key: String = serde_json::from_str(quoted).unwrap_or_default();
            format!("/{}", pointer_key(&key))
        }
        Step::Index(index) => format!("/{index}"),
        // Nothing of the object was read yet, or something is missing in it: the object itself is meant.
        Step::Key(None) => String::new(),
    }
}

/// A key as a pointer writes it.
#[must_use]
pub fn pointer_key(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// A document in which one value, and only it, is the text `here`; and the pointer to that value.
    fn marked() -> impl Strategy<Value = (Value, String)> {
        let leaf = (Just(Value::from("here")), Just(String::new()));
        leaf.prop_recursive(5, 16, 3, |inner| {
            let other = prop_oneof![
                Just(Value::Null),
                any::<i32>().prop_map(Value::from),
                "[a\"\\\\{}\\[\\],:é]{0,6}".prop_map(Value::from),
                Just(serde_json::json!({"k": [1, {"l": "]}"}]})),
            ];
            let others = proptest::collection::vec(other, 0..3);
            prop_oneof![
                (inner.clone(), others.clone(), others.clone()).prop_map(|((value, below), before, after)| {
                    let index = before.len();
                    let all = before.into_iter().chain([value]).chain(after).collect();
                    (Value::Array(all), format!("/{index}{below}"))
                }),
                (inner, others, "[a~/\"\\\\{,:é]{0,6}").prop_map(|((value, below), others, key)| {
                    let others = others.into_iter().enumerate().map(|(index, value)| (format!("other{index}"), value));
                    let all = others.chain([(key.clone(), value)]).collect();
                    (Value::Object(all), format!("/{}{below}", pointer_key(&key)))
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_position_in_a_document_has_the_pointer_that_finds_its_value((document, pointer) in marked(), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) }.unwrap();
            let end = text.find("\"here\"").unwrap() + "\"here\"".len();
            prop_assert_eq!(document.pointer(&pointer), Some(&Value::from("here")));
            prop_assert_eq!(before(&text, end), pointer);
        }

        #[test]
        fn no_text_and_no_position_makes_it_panic(text in ".{0,40}", end in 0..60usize) {
            let _ = before(&text, end);
        }
    }
}
