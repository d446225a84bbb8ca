//! `run --observe`: the life as it would be, with nothing changed. Reads, watches, policies and the data plane's plan are
//! real. What the life would write in the cluster, or have the data plane do, is answered here as if it had been done, and
//! what is read from then on is shown to the life with it in place. Files are pretended by [`crate::machine::files::Untouched`].

use std::collections::{BTreeMap, BTreeSet};

use moorline_lifecycle::{Action, Answer, Call, Event, GatewayPoolNode, Node, Pod, Routes, Stream};
use serde_json::Value;

/// What would have been changed so far.
pub(super) struct Observer {
    pod_uid: String,
    /// The own Node as the life saw it last.
    node: Option<Node>,
    /// Taints that would be gone, by key and effect.
    untainted: BTreeSet<(String, String)>,
    annotations: BTreeMap<String, Option<String>>,
    routes: BTreeMap<String, Option<Value>>,
    gateway_pool_node: Option<GatewayPoolNode>,
}

/// What becomes of an action.
pub(super) struct Instead {
    /// What would be done, in a sentence; none where the action changes nothing.
    pub(super) intent: Option<String>,
    /// What goes on.
    pub(super) then: Then,
}

/// What goes on.
pub(super) enum Then {
    /// The action is performed: it changes nothing, or only files that are pretended.
    Perform(Action),
    /// The life is told this.
    Hear(Event),
}

impl Observer {
    pub(super) fn new(pod_uid: String) -> Self {
        Self {
            pod_uid,
            node: None,
            untainted: BTreeSet::new(),
            annotations: BTreeMap::new(),
            routes: BTreeMap::new(),
            gateway_pool_node: None,
        }
    }

    /// Shows what was read with what would have been changed.
    pub(super) fn overlay(&mut self, event: &mut Event) {
        match event {
            Event::Answer(_, Answer::Node(Ok(node))) | Event::NodeStream(_, Stream::Changed(node)) => {
                self.overlay_node(node);
            }
            Event::Answer(_, Answer::Pod(Ok(pod))) => merge(&mut pod.annotations, &self.annotations),
            Event::Answer(_, Answer::Routes(Ok(Some(object)))) => {
                merge(&mut object.routes, &self.routes);
                self.gateway_pool_node = Some(object.clone());
            }
            _ => {}
        }
    }

    fn overlay_node(&mut self, node: &mut Node) {
        if self.node.as_ref().is_some_and(|before| before.uid != node.uid) {
            self.untainted.clear();
        }
        let identities: BTreeSet<_> =
            node.taints.iter().map(|taint| (taint.key.clone(), taint.effect.clone())).collect();
        // A taint that is really gone, and comes back later, is new.
        self.untainted.retain(|taint| identities.contains(taint));
        node.taints.retain(|taint| !self.untainted.contains(&(taint.key.clone(), taint.effect.clone())));
        self.node = Some(node.clone());
    }

    /// What becomes of an action.
    pub(super) fn instead(&mut self, action: Action) -> Instead {
        match action {
            Action::PatchTaints { call, taints, .. } => self.patch_taints(call, taints),
            Action::PatchPod(call, annotations) => {
                let intent = format!("Would patch the annotations of the own Pod: {}", json(&annotations));
                self.annotations.extend(annotations);
                let mut pod = Pod { uid: self.pod_uid.clone(), annotations: BTreeMap::new() };
                merge(&mut pod.annotations, &self.annotations);
                answered(intent, call, Answer::Pod(Ok(pod)))
            }
            Action::PatchRoutes(call, _, routes) => {
                let intent = format!("Would patch the routes of the own GatewayPoolNode: {}", json(&routes));
                self.routes.extend(routes);
                if let Some(object) = &mut self.gateway_pool_node {
                    merge(&mut object.routes, &self.routes);
                }
                answered(intent, call, Answer::Routes(Ok(self.gateway_pool_node.clone())))
            }
            Action::WriteEvent(call, trouble) => {
                let intent = format!(
                    "Would write the Event {} about the own Node: {}",
                    trouble.reason.as_str(),
                    trouble.message
                );
                answered(intent, call, Answer::EventWritten(Ok(())))
            }
            Action::ApplyDataPlane(call, _) => {
                let intent =
                    "Would have the data plane put its plan into effect. Which routes it would advertise isn't \
                              known before."
                        .to_owned();
                answered(intent, call, Answer::Applied(Ok(Routes::NotMine)))
            }
            Action::TearDownDataPlane(call, plan) => {
                let intent = format!("Would have the data plane undo the plan {plan}.");
                answered(intent, call, Answer::Done(Ok(())))
            }
            Action::WriteCni(_, ref content, _) => {
                let intent = format!("Would have this CNI configuration in place: {content}");
                Instead { intent: Some(intent), then: Then::Perform(action) }
            }
            Action::DisableCni(..) => {
                let intent = "Would disable the agent's CNI configuration.".to_owned();
                Instead { intent: Some(intent), then: Then::Perform(action) }
            }
            Action::SaveLedger(_, ref ledger) => {
                let intent = format!("Would save the ledger: {}", json(&**ledger));
                Instead { intent: Some(intent), then: Then::Perform(action) }
            }
            // Nothing of the cluster or of the machine is changed by these; no arm catches all, so that a new action has
            // to be thought of here.
            Action::ReadNode(_)
            | Action::WatchNode(..)
            | Action::WatchSite(..)
            | Action::WatchPool(..)
            | Action::CloseWatch(_)
            | Action::ReadPod(_)
            | Action::ReadRoutes(_)
            | Action::Ask(..)
            | Action::PlanDataPlane(..)
            | Action::JoinWorkers(_)
            | Action::Cancel(_)
            | Action::Note(_)
            | Action::Exit(_) => Instead { intent: None, then: Then::Perform(action) },
        }
    }

    fn patch_taints(&mut self, call: Call, taints: Vec<moorline_lifecycle::Taint>) -> Instead {
        // A patch is made from an observation, so there was one.
        let mut node = self.node.clone().unwrap_or_default();
        let gone = node.taints.iter().filter(|taint| !taints.contains(taint));
        let gone: BTreeSet<_> = gone.map(|taint| (taint.key.clone(), taint.effect.clone())).collect();
        let named: Vec<_> = gone.iter().map(|(key, effect)| format!("{key}:{effect}")).collect();
        let intent = format!("Would remove these taints from the own Node: {}.", named.join(", "));
        self.untainted.extend(gone);
        node.taints = taints;
        self.node = Some(node.clone());
        answered(intent, call, Answer::Node(Ok(node)))
    }
}

fn answered(intent: String, call: Call, answer: Answer) -> Instead {
    Instead { intent: Some(intent), then: Then::Hear(Event::Answer(call, answer)) }
}

/// As a merge patch does.
fn merge<T: Clone>(into: &mut BTreeMap<String, T>, patch: &BTreeMap<String, Option<T>>) {
    for (key, value) in patch {
        match value {
            Some(value) => into.insert(key.clone(), value.clone()),
            None => into.remove(key),
        };
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| format!("(it can't be shown as JSON: {error})"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "tests may fail by panicking")]

    use moorline_lifecycle::Taint;

    use super::*;

    fn node(uid: &str, keys: &[&str]) -> Node {
        let taint = |key: &&str| Taint { key: (*key).into(), effect: "NoSchedule".into(), ..Taint::default() };
        Node { uid: uid.into(), taints: keys.iter().map(taint).collect(), ..Node::default() }
    }

    fn sees(observer: &mut Observer, node: Node) -> Vec<String> {
        let mut event = Event::NodeStream(Call(1), Stream::Changed(node));
        observer.overlay(&mut event);
        let Event::NodeStream(_, Stream::Changed(node)) = event else { panic!("{event:?}") };
        node.taints.into_iter().map(|taint| taint.key).collect()
    }

    #[test]
    fn a_taint_that_would_be_removed_is_gone_from_every_later_observation_of_that_node() {
        let mut observer = Observer::new("uid".into());
        assert_eq!(sees(&mut observer, node("a", &["gateway", "other"])), ["gateway", "other"]);
        let patch = Action::PatchTaints {
            call: Call(2),
            uid: "a".into(),
            resource_version: "1".into(),
            taints: node("a", &["other"]).taints,
        };
        let instead = observer.instead(patch);
        assert_eq!(instead.intent.as_deref(), Some("Would remove these taints from the own Node: gateway:NoSchedule."));
        assert!(
            matches!(instead.then, Then::Hear(Event::Answer(Call(2), Answer::Node(Ok(node)))) if node.taints.len() == 1)
        );
        assert_eq!(sees(&mut observer, node("a", &["gateway", "other"])), ["other"]);
        // Someone else removed it, and it came back: that one is really there.
        assert_eq!(sees(&mut observer, node("a", &["other"])), ["other"]);
        assert_eq!(sees(&mut observer, node("a", &["gateway"])), ["gateway"]);
        observer.untainted.insert(("gateway".into(), "NoSchedule".into()));
        assert_eq!(sees(&mut observer, node("b", &["gateway"])), ["gateway"], "another Node has taints of its own");
    }

    #[test]
    fn annotations_and_routes_that_would_be_written_are_read_back() {
        let mut observer = Observer::new("uid".into());
        let patch = BTreeMap::from([("mine".to_owned(), Some("1".to_owned())), ("old".to_owned(), None)]);
        assert!(matches!(observer.instead(Action::PatchPod(Call(1), patch)).then, Then::Hear(_)));
        let annotations = BTreeMap::from([("old".to_owned(), "0".to_owned()), ("theirs".to_owned(), "2".to_owned())]);
        let mut event = Event::Answer(Call(2), Answer::Pod(Ok(Pod { uid: "uid".into(), annotations })));
        observer.overlay(&mut event);
        let Event::Answer(_, Answer::Pod(Ok(pod))) = event else { panic!("{event:?}") };
        assert_eq!(pod.annotations.keys().collect::<Vec<_>>(), ["mine", "theirs"]);

        let object = |routes| GatewayPoolNode { uid: "g".into(), resource_version: "1".into(), routes };
        let routes = BTreeMap::from([("10.0.0.0/8".to_owned(), Value::Null)]);
        let mut event = Event::Answer(Call(3), Answer::Routes(Ok(Some(object(routes)))));
        observer.overlay(&mut event);
        let clear = BTreeMap::from([("10.0.0.0/8".to_owned(), None)]);
        let instead = observer.instead(Action::PatchRoutes(Call(4), "1".into(), clear));
        let Then::Hear(Event::Answer(_, Answer::Routes(Ok(Some(object))))) = instead.then else {
            panic!("not answered")
        };
        assert!(object.routes.is_empty());
    }
}
