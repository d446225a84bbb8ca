//! Ten thousand orders of events, with every promise asked after every step: P1 to P10 while everything may fail, and L1
//! once it does not fail any more.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests may fail by panicking, and tell")]

mod world;

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use world::World;
use world::promises::Check;
use world::rest::comes_to_rest;
use world::steps::{Order, begin, run};
use world::strategy::order;

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} has to be a number: {text:?}")))
}

/// Runs a share of the orders, and tells the shortest one that breaks a promise. Each of these situations has to come up.
fn orders(
    name: &str,
    share: u64,
    earlier: &'static [Option<Option<&'static str>>],
    test: impl Fn(&Order, &mut World) -> Check,
    situations: &[&str],
) {
    let cases = env("MOORLINE_ORDERS").or_else(|| env("PROPTEST_CASES")).unwrap_or(10_000).div_ceil(share);
    let seed = env("MOORLINE_SEED").unwrap_or(1);
    let config = Config {
        cases: u32::try_from(cases).unwrap(),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    // Other orders in every test.
    bytes[8..].iter_mut().zip(name.bytes()).for_each(|(byte, letter)| *byte = letter);
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let visited = RefCell::new(BTreeMap::new());
    let outcome = runner.run(&order(earlier), |order| {
        let mut world = begin(&order.beginning).map_err(TestCaseError::fail)?;
        let outcome = test(&order, &mut world);
        for situation in world.visited {
            *visited.borrow_mut().entry(situation).or_insert(0_u32) += 1;
        }
        outcome.map_err(TestCaseError::fail)
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, order)) => {
            let mut world = begin(&order.beginning).unwrap();
            world.story = Some(Vec::new());
            let _ = test(&order, &mut world);
            let story = world.story.unwrap_or_default().join("\n");
            panic!(
                "A promise is broken.\n{why}\n\nThe shortest order found:{order:?}\n\nWhat happens in it:\n{story}\n"
            );
        }
        Err(TestError::Abort(why)) => panic!("The test could not run: {why}"),
    }
    let visited = visited.into_inner();
    println!("{cases} orders {name}; so many of them saw: {visited:#?}");
    if cases >= 1000 {
        let never: Vec<_> = situations.iter().filter(|situation| !visited.contains_key(**situation)).collect();
        assert!(never.is_empty(), "no order has come to: {never:?}");
    }
}

const EVERYWHERE: [&str; 8] = [
    "settled",
    "drift",
    "drift with an acknowledgment in flight",
    "settled after a lost answer",
    "SIGTERM",
    "SIGTERM when settled",
    "an absence is confirmed",
    "the bucket is empty",
];

#[test]
fn every_promise_holds_on_a_fresh_machine() {
    let situations = ["a removal is denied", "a removal meets a race", "a restart guard ignores a policy"];
    orders("on a fresh machine", 4, &[None], run, &[&EVERYWHERE[..], &situations[..]].concat());
}

#[test]
fn every_promise_holds_where_a_worker_has_settled() {
    let situations = ["a handoff undoes", "a forced cleanup undoes", "SIGTERM while handing off", "settled on routes"];
    orders("after a worker", 4, &[Some(None)], run, &[&EVERYWHERE[..], &situations[..]].concat());
}

#[test]
fn every_promise_holds_where_a_gateway_has_settled() {
    let situations = ["a handoff undoes", "a forced cleanup undoes", "a withdrawal is owed", "a removal is denied"];
    orders("after a gateway", 4, &[Some(Some("edge"))], run, &[&EVERYWHERE[..], &situations[..]].concat());
}

#[test]
fn every_promise_holds_in_lives_of_any_beginning() {
    orders("of any beginning", 4, &[None, Some(None), Some(Some("edge"))], run, &EVERYWHERE);
}

#[test]
fn l1_a_life_settles_once_its_environment_stops_failing() {
    let beginnings = &[None, Some(None), Some(Some("edge"))];
    let test = |order: &Order, world: &mut World| {
        run(order, world)?;
        comes_to_rest(world)
    };
    orders("that stop failing", 10, beginnings, test, &["settled", "a handoff undoes", "a forced cleanup undoes"]);
}
