//! Expectations that can't fail show nothing. So each one of every scenario is turned into something else that has to
//! fail when the scenario is run.

use moorline_sim::scenario::{EntryPattern, Expectation, Turn};
use serde_json::{Value, json};

/// The same expectation with something in it that isn't so.
pub(crate) fn broken(expectation: &Expectation) -> Expectation {
    let mut broken = expectation.clone();
    let Expectation { settled, acknowledgment, taints, routes, object, requests, .. } = &mut broken;
    if let Some(check) = settled {
        check.site = "elsewhere".into();
    }
    if let Some(check) = acknowledgment {
        match check.says.values_mut().next() {
            Some(value) => *value = json!("else"),
            None => check.present = !check.present,
        }
    }
    if let Some(check) = taints {
        std::mem::swap(&mut check.present, &mut check.absent);
    }
    if let Some(routes) = routes {
        routes.push("203.0.113.0/24".into());
    }
    if let Some(check) = object {
        check.exists = check.exists.map(|exists| !exists);
        check.equals = check.equals.as_ref().map(|_| json!("else"));
        check.includes = check.includes.as_ref().map(|_| json!({"else": 1}));
    }
    if let Some(check) = requests {
        count(&mut check.min, &mut check.max, &mut check.exactly);
    }
    let Expectation { only_writes, startup_watch_ends, timeline, entries, verdicts, .. } = &mut broken;
    if let Some(allowed) = only_writes {
        allowed.clear();
    }
    if let Some(ends) = startup_watch_ends {
        *ends = !*ends;
    }
    if let Some(turns) = timeline {
        turns.push(Turn(EntryPattern { text: Some("nobody says this".into()), ..EntryPattern::default() }));
    }
    if let Some(check) = entries {
        count(&mut check.min, &mut check.max, &mut check.exactly);
    }
    if let Some(check) = verdicts {
        count(&mut check.min, &mut check.max, &mut check.exactly);
    }
    let Expectation { folder, file, exits, readyz, .. } = &mut broken;
    if let Some(check) = folder {
        check.holds.push("else".into());
    }
    if let Some(check) = file {
        check.content = check.content.as_ref().map(|_| "else".into());
        check.json = check.json.as_ref().map(|_| Value::Null);
        check.includes = check.includes.as_ref().map(|_| json!({"else": 1}));
        // Of a file that is untouched, at least that it is there.
        check.exists = Some(!check.exists.unwrap_or(true));
    }
    if let Some(codes) = exits {
        codes.push(99);
    }
    if let Some(check) = readyz {
        match &mut check.ready {
            Some(ready) => *ready = !*ready,
            None => check.contains.push("nobody says this".into()),
        }
    }
    broken
}

/// One more than exactly so many; none of what there may be some of; far more than at least so many.
fn count(min: &mut Option<usize>, max: &mut Option<usize>, exactly: &mut Option<usize>) {
    match (&mut *min, &mut *max, &mut *exactly) {
        (_, _, Some(exactly)) => *exactly += 1,
        (_, Some(max), _) if *max > 0 => *max = 0,
        _ => (*min, *max) = (Some(100_000), None),
    }
}
