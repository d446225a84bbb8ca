//! What may happen next in a state.

use moorline_lifecycle::{Action, Event, FailureKind};

use super::{Alphabet, Point};
use crate::world::policies::{Acknowledgment, Adoption, Cni, Drift, Policies, Retry, Taints};
use crate::world::promises::Check;
use crate::world::steps::{Beginning, Change, begin, change, kill, restart_if_ended, watches_have_news};
use crate::world::strategy::KINDS;
use crate::world::{Fault, Kind, Says, World};

/// Something that may happen.
#[derive(Debug, Clone, Copy, PartialEq, Hash)]
pub enum Move {
    /// The oldest call is answered well.
    Answer,
    /// The watch says the next of what there is.
    Say(Kind),
    /// Time passes until the life wants to be ticked.
    Tick,
    /// The container starts again.
    Start,
    /// Another call is answered first, or before what watches have to say.
    AnswerFirst(usize),
    /// Another watch says something first.
    SayFirst(Kind),
    /// A call takes effect; its answer is on its way for longer.
    Serve(usize),
    /// Time passes although calls are under way.
    EarlyTick,
    /// A call meets this.
    Fault(usize, Fault),
    /// A watch does this.
    Stream(Kind, Says),
    /// The cluster changes.
    Change(Change),
    /// Other policies answer.
    Policies(Policies),
    /// Somebody looks and finds no CNI file: it was taken away, or was there when it was looked at too early.
    LookAtCni { taken: bool },
    /// SIGTERM.
    Terminate,
    /// SIGKILL: calls under way have taken effect or not, in the same Pod or in another, and the ledger is there or lost.
    Kill { reached: bool, new_pod: bool, lose_ledger: bool },
}

impl Move {
    pub fn is_trouble(self) -> bool {
        matches!(
            self,
            Self::Fault(..)
                | Self::Stream(..)
                | Self::Change(_)
                | Self::Policies(_)
                | Self::LookAtCni { .. }
                | Self::Terminate
                | Self::Kill { .. }
        )
    }

    pub fn is_detour(self) -> bool {
        matches!(self, Self::AnswerFirst(_) | Self::SayFirst(_) | Self::Serve(_) | Self::EarlyTick)
    }

    pub fn starts(self) -> bool {
        matches!(self, Self::Start | Self::Kill { .. })
    }

    /// The kind of a trouble, for a count.
    pub fn kind(self) -> String {
        match self {
            Self::Fault(_, fault) => format!("a call meets {fault:?}"),
            Self::Policies(_) => "other policies".into(),
            other => format!("{other:?}"),
        }
    }
}

/// Takes a move, and asks every promise about it.
pub fn take(world: &mut World, action: Move) -> Check {
    match action {
        Move::Answer => world.deliver(0, Fault::None),
        Move::AnswerFirst(index) => world.deliver(index, Fault::None),
        Move::Say(kind) | Move::SayFirst(kind) => world.stream(kind, Says::Next).map(drop),
        Move::Tick | Move::EarlyTick => world.tick(),
        Move::Start => restart_if_ended(world),
        Move::Serve(index) => world.serve(index, Fault::None),
        Move::Fault(index, fault) => world.deliver(index, fault),
        Move::Stream(kind, says) => world.stream(kind, says).map(drop),
        Move::Change(what) => {
            change(world, what);
            Ok(())
        }
        Move::Policies(policies) => world.policies_changed(policies),
        Move::LookAtCni { taken } => world.look_at_cni(taken),
        Move::Terminate => world.tell(Event::Terminate),
        Move::Kill { reached, new_pod, lose_ledger } => kill(world, reached, new_pod, lose_ledger),
    }?;
    // An answer that nobody waits for any more changes nothing, whenever it comes.
    let mut aside = world.clone();
    (0..world.late.len()).try_for_each(|index| aside.late_answer(index))
}

fn beginning(
    site: Option<&'static str>,
    pool: Option<&'static str>,
    objects: bool,
    earlier: Option<Option<&'static str>>,
) -> Beginning {
    let policies = Policies::default();
    Beginning { site, pool, objects, advertises: true, foreign_taint: true, policies, earlier }
}

fn beginnings(alphabet: Alphabet) -> Vec<Beginning> {
    let mut beginnings = vec![
        // A first start: as a worker, and as a gateway.
        beginning(Some("berlin"), None, true, None),
        beginning(Some("berlin"), Some("edge"), true, None),
        // A gateway becomes a worker, or starts again as what it was; a worker moves to another Site.
        beginning(Some("berlin"), None, true, Some(Some("edge"))),
        beginning(Some("berlin"), Some("edge"), true, Some(Some("edge"))),
        beginning(Some("paris"), None, true, Some(None)),
    ];
    if alphabet == Alphabet::All {
        beginnings.extend([
            // No Site label; a pool that isn't there; neither Site nor pool.
            beginning(None, None, true, None),
            beginning(Some("berlin"), Some("typo"), true, Some(None)),
            beginning(Some("berlin"), Some("edge"), false, None),
        ]);
    }
    beginnings
}

/// What a process finds that is not as the last one left it.
#[derive(Debug, Clone, Copy)]
enum Found {
    /// The cluster has changed meanwhile.
    Changed(Change),
    NoLedger,
    /// The last process owes the withdrawal of its acknowledgment.
    Owed,
    /// The disk was cloned: its ledger is about a Node of another name.
    AnothersLedger,
}

/// The worlds that the check begins in, before their first process starts.
pub fn worlds(alphabet: Alphabet) -> Result<Vec<World>, String> {
    let mut worlds = beginnings(alphabet).iter().map(begin).collect::<Result<Vec<_>, _>>()?;
    if alphabet == Alphabet::All {
        let inherited = [
            (None, None, Found::NoLedger),
            (None, None, Found::Owed),
            (None, None, Found::Changed(Change::CreateNode(Some("berlin"), None))),
            (Some("edge"), Some("edge"), Found::Changed(Change::DeleteNode)),
            (Some("edge"), None, Found::Changed(Change::ReplacePod)),
            (Some("edge"), None, Found::AnothersLedger),
        ];
        for (earlier, pool, found) in inherited {
            worlds.push(inherit(earlier, pool, found)?);
        }
    }
    Ok(worlds)
}

fn inherit(earlier: Option<&'static str>, pool: Option<&'static str>, found: Found) -> Result<World, String> {
    let mut world = begin(&beginning(Some("berlin"), pool, true, Some(earlier)))?;
    let ledger = world.machine.durable().cloned();
    match (found, ledger) {
        (Found::Changed(what), _) => change(&mut world, what),
        (Found::NoLedger, _) => world.machine.lose_ledger(),
        (Found::Owed, Some(mut ledger)) => {
            ledger.acknowledgment.iter_mut().for_each(|acknowledged| acknowledged.owed = true);
            world.machine.save(&ledger);
        }
        (Found::AnothersLedger, Some(mut ledger)) => {
            ledger.node_name = "another-node".into();
            world.machine.save(&ledger);
            // Where that Node is, this Pod has never been.
            world.api.replace_pod();
        }
        (Found::Owed | Found::AnothersLedger, None) => return Err(format!("{found:?}: no process has left a ledger")),
    }
    Ok(world)
}

pub fn moves(point: &Point, alphabet: Alphabet, moves: &mut Vec<Move>) {
    let (world, left) = (&point.world, point.left);
    if world.ended() {
        moves.extend((left.starts > 0).then_some(Move::Start));
        return;
    }
    let waits = world.life.deadline().is_some() && left.ticks > 0;
    let news = [Kind::Node, Kind::Site, Kind::Pool].into_iter().filter(|kind| world.has_news(*kind));
    let news: Vec<_> = news.collect();
    moves.extend(match news.first() {
        Some(kind) => Some(Move::Say(*kind)),
        None if !world.flight.is_empty() => Some(Move::Answer),
        None => waits.then_some(Move::Tick),
    });
    if left.detours > 0 {
        moves.extend(news.iter().skip(1).map(|kind| Move::SayFirst(*kind)));
        let first = usize::from(!watches_have_news(world));
        moves.extend((first..world.flight.len()).map(Move::AnswerFirst));
        let unserved = |(index, flight): (usize, &crate::world::Flight)| {
            (flight.served.is_none() && !matches!(flight.action, Action::Ask(..))).then_some(Move::Serve(index))
        };
        moves.extend(world.flight.iter().enumerate().filter_map(unserved));
        let busy = !world.flight.is_empty() || !news.is_empty();
        moves.extend((waits && busy).then_some(Move::EarlyTick));
    }
    if left.troubles > 0 {
        troubles(point, alphabet, moves);
    }
}

fn troubles(point: &Point, alphabet: Alphabet, moves: &mut Vec<Move>) {
    let (world, left) = (&point.world, point.left);
    for (index, flight) in world.flight.iter().enumerate().filter(|(_, flight)| flight.served.is_none()) {
        moves.extend(faults(&flight.action, alphabet).into_iter().map(|fault| Move::Fault(index, fault)));
    }
    let open =
        [(Kind::Node, world.node.is_some()), (Kind::Site, world.site.is_some()), (Kind::Pool, world.pool.is_some())];
    for (kind, _) in open.into_iter().filter(|(_, open)| *open) {
        moves.push(Move::Stream(kind, Says::Closed));
        if alphabet == Alphabet::All {
            let all = [Says::Bookmark, Says::Fails(FailureKind::Expired), Says::Fails(FailureKind::Unavailable)];
            moves.extend(all.map(|says| Move::Stream(kind, says)));
        }
    }
    moves.extend(changes(alphabet).into_iter().map(Move::Change));
    moves.push(Move::Terminate);
    if alphabet == Alphabet::All && world.life.cni_in_place().is_some() {
        moves.extend([true, false].map(|taken| Move::LookAtCni { taken }));
    }
    if left.starts > 0 {
        let kill = |reached, new_pod, lose_ledger| Move::Kill { reached, new_pod, lose_ledger };
        moves.extend([kill(false, false, false), kill(true, false, false), kill(false, false, true)]);
        if alphabet == Alphabet::All {
            moves.extend([kill(true, true, false), kill(false, true, false)]);
        }
    }
    match alphabet {
        Alphabet::All => moves.extend(policies().into_iter().map(Move::Policies)),
        Alphabet::Core => moves.push(Move::Policies(Policies { drift: Drift::AlwaysDrifted, ..Policies::default() })),
    }
}

/// What a call of this kind may meet.
fn faults(action: &Action, alphabet: Alphabet) -> Vec<Fault> {
    let read = matches!(action, Action::ReadNode(_) | Action::ReadPod(_) | Action::ReadRoutes(_));
    let write = matches!(action, Action::PatchTaints { .. } | Action::PatchPod(..) | Action::PatchRoutes(..));
    let machine = matches!(action, Action::WriteCni(..) | Action::DisableCni(..));
    match action {
        Action::Ask(..) | Action::JoinWorkers(_) | Action::PlanDataPlane(..) => vec![Fault::Fails(FailureKind::Other)],
        _ if !read && !write && !matches!(action, Action::WriteEvent(..)) => {
            // A failure of the machine, with the effect or without, and what only a person can help.
            let mut faults = vec![Fault::Fails(FailureKind::Other), Fault::Lost(true)];
            faults.extend(machine.then_some(Fault::Denied));
            faults
        }
        _ if alphabet == Alphabet::Core => {
            let mut faults = vec![Fault::Fails(FailureKind::Unavailable)];
            faults.extend(read.then_some(Fault::Fails(FailureKind::NotFound)));
            if write {
                faults.extend([Fault::Fails(FailureKind::Conflict), Fault::Denied, Fault::Lost(true)]);
            }
            faults
        }
        _ => {
            let mut faults: Vec<_> = KINDS.map(Fault::Fails).to_vec();
            faults.extend([Fault::Throttled(7), Fault::Denied, Fault::Lost(true), Fault::Lost(false)]);
            faults.extend(write.then_some(Fault::Ignored));
            faults
        }
    }
}

fn changes(alphabet: Alphabet) -> Vec<Change> {
    let mut changes = vec![
        Change::Site(Some("paris")),
        Change::Pool(Some("edge")),
        Change::Pool(None),
        Change::DeleteNode,
        Change::CreateNode(Some("berlin"), None),
        Change::GatewayTaint(true),
        Change::PutSite("berlin", Some(false)),
    ];
    if alphabet == Alphabet::All {
        changes.extend([
            Change::Site(None),
            Change::Pool(Some("typo")),
            Change::CreateNode(Some("berlin"), Some("edge")),
            Change::CreateNode(None, None),
            Change::GatewayTaint(false),
            Change::ForeignTaint(false),
            Change::PodCidr(0),
            Change::PodCidr(2),
            Change::Heartbeat,
            Change::PutSite("berlin", None),
            Change::PutSite("paris", Some(false)),
            Change::DeleteSite("berlin"),
            Change::PutPool("edge"),
            Change::PutPool("typo"),
            Change::DeletePool("edge"),
            Change::PutRoutes("10.9.0.0/16"),
            Change::PutRoutes("10.77.0.0/16"),
            Change::DeleteRoutes,
            Change::ReplacePod,
        ]);
    }
    changes
}

/// One hook at a time answers in another way.
fn policies() -> Vec<Policies> {
    let usual = Policies::default();
    let adoption = [Adoption::Nonsense, Adoption::NoBinding, Adoption::Held];
    let drift = [
        Drift::AlwaysDrifted,
        Drift::AlwaysSame,
        Drift::MayTolerate,
        Drift::NoBinding,
        Drift::Held,
        Drift::HeldMayTolerate,
    ];
    let retry = [Retry::AtOnce, Retry::Hour, Retry::GiveUp, Retry::NoBinding, Retry::Held];
    let taints = [Taints::Everything, Taints::Nothing, Taints::NoBinding, Taints::Held];
    let cni = [Cni::Evil, Cni::Broken, Cni::Wait, Cni::Unmanaged, Cni::NoBinding, Cni::Held];
    let acknowledgment =
        [Acknowledgment::Rack, Acknowledgment::HostsKey, Acknowledgment::NoBinding, Acknowledgment::Held];
    let mut policies = vec![usual];
    policies.extend(adoption.map(|adoption| Policies { adoption, ..usual }));
    policies.extend(drift.map(|drift| Policies { drift, ..usual }));
    policies.extend(retry.map(|retry| Policies { retry, ..usual }));
    policies.extend(taints.map(|taints| Policies { taints, ..usual }));
    policies.extend(cni.map(|cni| Policies { cni, ..usual }));
    policies.extend(acknowledgment.map(|acknowledgment| Policies { acknowledgment, ..usual }));
    policies
}
