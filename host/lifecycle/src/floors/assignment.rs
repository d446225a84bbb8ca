//! Floors of the adoption and drift hooks: names are valid, and a changed projection is a change.

use crate::objects::Assignment;

/// The longest name of an object (DNS subdomain, RFC 1123).
const LONGEST_NAME: usize = 253;

/// What is wrong with the names in an adoption verdict.
pub(crate) fn assignment_problem(site: &str, pool: Option<&str>) -> Option<String> {
    if !is_name(site) {
        return Some(format!("{:?} is no valid name of a Site.", cut(site)));
    }
    match pool {
        Some(pool) if !is_name(pool) => Some(format!("{:?} is no valid name of a GatewayPool.", cut(pool))),
        _ => None,
    }
}

/// A DNS subdomain as Kubernetes wants it for the name of an object.
fn is_name(name: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.len() <= LONGEST_NAME
        && name.split('.').all(|part| {
            edge(part.chars().next())
                && edge(part.chars().last())
                && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        })
}

fn cut(name: &str) -> String {
    name.chars().take(80).collect()
}

/// What is different between the adopted assignment and the projection, if anything.
pub(crate) fn change(adopted: &Assignment, projected: Option<&Assignment>) -> Option<String> {
    let Some(projected) = projected else {
        return Some(format!("The Node has no assignment any more; it was a {adopted}."));
    };
    if projected == adopted {
        return None;
    }
    let name = |pool: &Option<String>| pool.clone().unwrap_or_else(|| "none".into());
    let mut changes = Vec::new();
    if projected.node_uid != adopted.node_uid {
        changes.push(format!("Node UID changed from {} to {}", adopted.node_uid, projected.node_uid));
    }
    if projected.site != adopted.site {
        changes.push(format!("Site changed from {} to {}", adopted.site, projected.site));
    }
    if projected.pool != adopted.pool {
        changes.push(format!("GatewayPool changed from {} to {}", name(&adopted.pool), name(&projected.pool)));
    }
    Some(format!("{}.", changes.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_subdomains() {
        for good in ["berlin", "a", "0", "site-1.example.com"] {
            assert_eq!(assignment_problem(good, Some(good)), None, "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a..b", "a_b", "ä", ".", "a/b", &"a".repeat(254)] {
            assert!(assignment_problem(bad, None).is_some(), "{bad}");
            assert!(assignment_problem("ok", Some(bad)).is_some(), "{bad}");
        }
    }

    #[test]
    fn a_wrong_name_is_quoted_and_a_long_one_is_cut() {
        let problem = assignment_problem("ok", Some("_x")).unwrap();
        assert_eq!(problem, "\"_x\" is no valid name of a GatewayPool.");
        let problem = assignment_problem(&"a".repeat(100_000), None).unwrap();
        assert_eq!(problem, format!("\"{}\" is no valid name of a Site.", "a".repeat(80)));
    }

    #[test]
    fn a_projection_that_waits_is_a_change() {
        let adopted = Assignment { node_uid: "u".into(), site: "s".into(), pool: Some("p".into()) };
        assert_eq!(change(&adopted, Some(&adopted)), None);
        assert!(change(&adopted, None).is_some());
        let worker = Assignment { pool: None, ..adopted.clone() };
        assert_eq!(change(&adopted, Some(&worker)).as_deref(), Some("GatewayPool changed from p to none."));
    }
}
