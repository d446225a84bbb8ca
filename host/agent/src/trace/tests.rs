#![allow(clippy::unwrap_used, reason = "tests may fail by panicking")]

use moorline_lifecycle::Settings;

use super::*;

/// The trace of a life that was started and told to end.
fn trace() -> Vec<Line> {
    let boot = Boot::new(Settings::new("n1", "p", "ns", "u"));
    let mut lines = vec![Line::Born(Box::new(boot.clone()))];
    let mut life = Life::new(boot);
    for (at, event) in [(Duration::ZERO, Event::Started), (Duration::from_secs(1), Event::Terminate)] {
        lines.push(Line::Event(at, event.clone()));
        lines.extend(life.step(at, event).into_iter().map(Line::Action));
    }
    lines
}

fn text(lines: &[Line]) -> String {
    lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect()
}

/// How often a life began, and how many steps it made.
fn replayed(text: &str) -> Result<(usize, usize), ReplayError> {
    let (mut lives, mut steps) = (0, 0);
    replay(text.as_bytes(), |told| match told {
        Replayed::Born => lives += 1,
        Replayed::Step(..) => steps += 1,
    })
    .map(|()| (lives, steps))
}

#[test]
fn a_trace_replays_to_the_same_actions() {
    assert_eq!(replayed(&text(&trace())).unwrap(), (1, 2));
    assert_eq!(replayed(&text(&trace()).repeat(2)).unwrap(), (2, 4), "a file holds the lives of several processes");
}

#[test]
fn an_action_too_many_too_few_or_another_is_told_with_its_line() {
    let whole = trace();
    let actions: Vec<_> = (0..whole.len()).filter(|at| matches!(whole[*at], Line::Action(_))).collect();
    for at in actions {
        let mut fewer = whole.clone();
        fewer.remove(at);
        // The last step may have been cut short; any other has to be whole.
        let is_of_the_last_step = !whole[at..].iter().any(|line| matches!(line, Line::Event(..)));
        let is_the_end = at == whole.len() - 1;
        assert_eq!(replayed(&text(&fewer)).is_ok(), is_of_the_last_step && is_the_end, "without line {}", at + 1);
        let mut more = whole.clone();
        more.insert(at, Line::Action(Action::Cancel(moorline_lifecycle::Call(99))));
        let error = replayed(&text(&more)).unwrap_err();
        assert!(matches!(error, ReplayError::Differs { line, .. } if line == at + 1), "{error}");
    }
}

#[test]
fn a_torn_last_line_is_the_end_and_a_torn_line_before_is_an_error() {
    let whole = text(&trace());
    assert!(replayed(&whole[..whole.len() - 5]).is_ok());
    let torn = format!("{}\n{whole}", &whole[..20]);
    assert!(matches!(replayed(&torn).unwrap_err(), ReplayError::Line { line: 1, .. }));
    let (_, unborn) = whole.split_once('\n').unwrap();
    assert!(matches!(replayed(unborn).unwrap_err(), ReplayError::Unborn { line: 1 }));
}

#[test]
fn a_recorder_that_fails_says_so_and_leaves_no_hole() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let recorder = Recorder::new(Full(1));
    for _ in 0..3 {
        recorder.tell(Duration::ZERO, &Entry::Event(&Event::Started));
    }
    assert_eq!(recorder.into_inner().err().unwrap().kind(), io::ErrorKind::StorageFull);
}
