//! The settled agent: what it does not do, and what a change of its Site or pool brings.

use moorline_lifecycle::{Action, CniSeen, Event, FailureKind, State, Stream, TroubleReason};

use crate::world::policies::Policies;
use crate::world::{Fault, Kind, Says};
use crate::*;

fn writes_cni(action: &Action) -> bool {
    matches!(action, Action::WriteCni(..))
}

/// So much time passes; each watch is closed when the life that it was asked to have is over.
fn serve(world: &mut World, time: Duration) {
    let until = world.now() + time;
    while world.now() < until {
        quiet(world);
        let asked = |kind: Kind| {
            let open = match kind {
                Kind::Node => return None,
                Kind::Site => world.site.as_ref().map(|open| (open.call, open.opened_at))?,
                Kind::Pool => world.pool.as_ref().map(|open| (open.call, open.opened_at))?,
            };
            world.actions.iter().find_map(|(_, action)| match action {
                Action::WatchSite(call, _, _, life) | Action::WatchPool(call, _, _, life) if *call == open.0 => {
                    Some((open.1 + *life, kind))
                }
                _ => None,
            })
        };
        let closes = [Kind::Site, Kind::Pool].into_iter().filter_map(asked).min_by_key(|(at, _)| *at);
        match (world.life.deadline(), closes) {
            (Some(deadline), Some((at, _))) if deadline <= at => world.tick().unwrap(),
            (Some(_), None) => world.tick().unwrap(),
            (_, Some((at, kind))) => {
                world.pass(at - world.now());
                world.stream(kind, Says::Bookmark).unwrap();
                world.stream(kind, Says::Closed).unwrap();
            }
            (None, None) => break,
        }
    }
}

#[test]
fn a_day_of_a_settled_agent_is_at_most_two_renewals_an_hour_per_watch_and_nothing_else() {
    for (pool, watches) in [(None, 1), (Some("edge"), 2)] {
        let mut world = settled(pool, false);
        let before = requests(&world).len();
        serve(&mut world, 24 * 3600 * SECOND);
        let day = &requests(&world)[before..];
        assert!(day.iter().all(|name| matches!(&name[..], "WatchSite" | "WatchPool")), "{day:?}");
        assert!((24 * watches..=48 * watches).contains(&day.len()), "{} renewals of {watches} watches", day.len());
        let renewed = world.actions.iter().filter_map(|(_, action)| match action {
            Action::WatchSite(_, _, from, _) | Action::WatchPool(_, _, from, _) => Some(from.is_some()),
            _ => None,
        });
        assert_eq!(renewed.filter(|from| !from).count(), watches, "a renewal goes on from the last bookmark");
        assert_eq!(world.state(), State::Settled);
    }
}

#[test]
fn a_changed_site_is_rendered_again_once_and_only_after_a_random_delay() {
    let mut delays = Vec::new();
    let mut world = settled(None, false);
    for generation in [4, 7, 10] {
        again(&mut world, |_| {});
        settle(&mut world, SECOND).unwrap();
        let (before, at) = (world.machine.cni.clone(), world.now());
        for _ in 0..3 {
            world.api.put_site("berlin", None);
            quiet(&mut world);
        }
        assert_eq!(world.machine.cni, before, "not at once");
        live(&mut world, 31 * SECOND);
        let written: Vec<_> =
            world.actions.iter().filter(|(_, action)| writes_cni(action)).map(|(at, _)| *at).skip(1).collect();
        assert_eq!(written.len(), 1, "three changes within the delay are one");
        delays.push(written[0] - at);
        let mtu = format!("\"mtu\":{}", 1400 + generation);
        assert!(world.machine.cni.as_ref().unwrap().contains(&mtu), "the last version is used");
    }
    assert!(delays.iter().all(|delay| *delay <= 30 * SECOND), "{delays:?}");
    assert!(delays.windows(2).all(|pair| pair[0] != pair[1]), "{delays:?}");
}

#[test]
fn a_changed_pool_and_one_that_is_made_anew_are_set_up_after_a_random_delay() {
    let mut world = settled(Some("edge"), true);
    for change in [
        |world: &mut World| world.api.put_pool("edge"),
        |world: &mut World| {
            world.api.delete_pool("edge");
            world.api.put_pool("edge");
        },
    ] {
        let before = said(&world, |action| matches!(action, Action::ApplyDataPlane(..)));
        change(&mut world);
        quiet(&mut world);
        assert_eq!(said(&world, |action| matches!(action, Action::ApplyDataPlane(..))), before, "not at once");
        live(&mut world, 31 * SECOND);
        assert_eq!(said(&world, |action| matches!(action, Action::ApplyDataPlane(..))), before + 1);
        comes_to_rest(&mut world).unwrap();
    }
}

#[test]
fn a_status_write_on_the_site_changes_nothing() {
    let mut world = settled(None, false);
    let site = world.api.sites.current("berlin").unwrap().clone();
    let before = world.actions.len();
    let mut labelled = site;
    labelled.labels.insert("a".into(), "b".into());
    world.api.sites.log.push((world.api.version() + 1, "berlin".into(), Some(labelled)));
    live(&mut world, 60 * SECOND);
    assert_eq!(world.actions.len(), before);
}

#[test]
fn a_renewed_watch_that_repeats_old_versions_brings_no_old_configuration_back() {
    let mut world = settled(None, false);
    world.api.put_site("berlin", None);
    world.api.put_site("berlin", None);
    live(&mut world, 60 * SECOND);
    let written = said(&world, writes_cni);
    // No bookmark since the beginning: both versions are said again, and in between the stream breaks.
    world.stream(Kind::Site, Says::Closed).unwrap();
    until_open(&mut world);
    world.stream(Kind::Site, Says::Next).unwrap();
    world.stream(Kind::Site, Says::Closed).unwrap();
    live(&mut world, 120 * SECOND);
    assert_eq!(said(&world, writes_cni), written);
}

#[test]
fn an_older_version_that_a_watch_repeats_is_not_used() {
    let mut world = started(Some("berlin"), None);
    let old = world.api.sites.current("berlin").unwrap().clone();
    until(&mut world, |action| matches!(action, Action::ApplyDataPlane(..)));
    world.api.put_site("berlin", None);
    while world.stream(Kind::Site, Says::Next).unwrap() {}
    let call = world.site.as_ref().unwrap().call;
    world.life.step(world.now(), Event::SiteStream(call, Stream::Changed(old)));
    settle(&mut world, 60 * SECOND).unwrap();
    assert!(world.machine.cni.as_ref().unwrap().contains("\"mtu\":1402"), "{:?}", world.machine.cni);
}

fn until_open(world: &mut World) {
    for _ in 0..100 {
        if world.site.is_some() {
            return;
        }
        if world.flight.is_empty() { world.tick().unwrap() } else { world.deliver(0, Fault::None).unwrap() }
    }
}

#[test]
fn a_deleted_site_keeps_what_is_on_disk_and_readyz_says_so() {
    let mut world = settled(None, false);
    let (cni, items) = (world.machine.cni.clone(), world.machine.items.clone());
    world.api.delete_site("berlin");
    live(&mut world, 3600 * SECOND);
    assert_eq!((&world.machine.cni, &world.machine.items), (&cni, &items));
    assert_eq!(world.life.status().missing[0].reason, "Site berlin was deleted; what is on disk stays.");
    world.api.put_site("berlin", None);
    live(&mut world, 60 * SECOND);
    assert!(world.life.status().missing.is_empty());
    assert_ne!(world.machine.items, items, "it is another Site");
}

#[test]
fn a_site_that_hands_cni_to_someone_else_has_the_own_file_disabled_and_nothing_else() {
    let mut world = settled(None, false);
    let items = world.machine.items.len();
    world.api.put_site("berlin", Some(false));
    live(&mut world, 60 * SECOND);
    assert!(world.machine.cni.is_none() && world.machine.disabled.is_some());
    assert_eq!((world.machine.items.len(), world.state()), (items, State::Settled));
    assert_eq!(said(&world, withdrawal), 0);
}

#[test]
fn a_settled_agent_that_fails_to_render_waits_as_after_a_first_failure_each_time() {
    let mut world = settled(None, false);
    for _ in 0..6 {
        world.api.put_site("berlin", None);
        answer(&mut world, writes_cni, Fault::Fails(FailureKind::Other));
        let failed_at = world.now();
        answer(&mut world, writes_cni, Fault::None);
        let waited = world.now() - failed_at;
        assert!(waited <= SECOND, "{waited:?} after a success in between");
        live(&mut world, 60 * SECOND);
    }
}

#[test]
fn a_configuration_that_was_taken_away_is_written_again() {
    let mut world = settled(None, false);
    let cni = world.machine.cni.clone();
    assert_eq!(world.life.cni_in_place(), cni.as_deref());
    world.look_at_cni(true).unwrap();
    quiet(&mut world);
    assert_eq!((&world.machine.cni, said(&world, writes_cni)), (&cni, 2));
    // It was looked at just before it was written.
    world.look_at_cni(false).unwrap();
    quiet(&mut world);
    assert_eq!((&world.machine.cni, said(&world, writes_cni)), (&cni, 3));
    assert!(world.life.status().ready);
}

#[test]
fn a_file_of_someone_else_that_takes_the_place_of_the_own_one_stays_and_the_agent_is_not_ready() {
    let mut world = settled(None, false);
    world.machine.cni = Some("foreign".into());
    world.look_at_cni(false).unwrap();
    live(&mut world, 60 * SECOND);
    assert_eq!(world.machine.cni.as_deref(), Some("foreign"));
    assert!(!world.life.status().ready);
    assert_eq!(said(&world, blocked), 1);
}

#[test]
fn a_file_that_is_in_the_way_is_told_once_and_shown_as_long_as_it_is_there() {
    let mut world = settled(None, false);
    let look = |world: &mut World, in_the_way: Option<&str>| {
        let seen = CniSeen { in_place: true, in_the_way: in_the_way.map(ToOwned::to_owned) };
        world.tell(Event::CniSeen(seen)).unwrap();
        live(world, 3600 * SECOND);
        world.life.status().missing.into_iter().map(|missing| missing.reason).collect::<Vec<_>>()
    };
    assert_eq!(look(&mut world, Some("00-broken.conf is in the way.")), ["00-broken.conf is in the way."]);
    assert_eq!(said(&world, blocked), 1);
    assert_eq!(look(&mut world, Some("00-broken.conf is in the way.")).len(), 1);
    assert_eq!((said(&world, blocked), said(&world, writes_cni)), (1, 1));
    assert!(look(&mut world, None).is_empty() && world.life.status().ready);
}

#[test]
fn where_no_configuration_has_to_be_in_place_nobody_has_to_look() {
    let mut world = settled_in(|world| world.api.put_site("berlin", Some(false)));
    assert_eq!(world.life.cni_in_place(), None);
    let before = world.actions.len();
    world.look_at_cni(false).unwrap();
    assert_eq!(world.actions.len(), before);
    let mut world = settled(None, false);
    world.tell(Event::Terminate).unwrap();
    assert_eq!(world.life.cni_in_place(), None, "a process that ends writes nothing");
}

fn blocked(action: &Action) -> bool {
    matches!(action, Action::WriteEvent(_, trouble) if trouble.reason == TroubleReason::CniBlocked)
}

#[test]
fn a_ledger_that_is_being_replaced_is_not_what_is_durable() {
    for fault in [Fault::None, Fault::Lost(true)] {
        let mut world = settled(None, false);
        world.policies_changed(Policies { cni: world::policies::Cni::Unmanaged, ..Policies::default() }).unwrap();
        // A ledger without the content is on its way to the disk, and the content is wanted again.
        let place = until(&mut world, |action| matches!(action, Action::SaveLedger(..)));
        world.serve(place, fault).unwrap();
        world.policies_changed(Policies::default()).unwrap();
        settle(&mut world, 60 * SECOND).unwrap();
        assert!(world.machine.cni.is_some(), "{fault:?}");
    }
}

#[test]
fn changed_policies_render_again_and_do_not_rewrite_the_acknowledgment() {
    let mut world = settled(None, false);
    let shown = world.api.pod.clone();
    world.policies_changed(Policies { cni: world::policies::Cni::Unmanaged, ..Policies::default() }).unwrap();
    live(&mut world, 60 * SECOND);
    assert!(world.machine.cni.is_none());
    assert_eq!(world.api.pod.annotations, shown.annotations);
}
