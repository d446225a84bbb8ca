//! The report for people: timeline, requests, verdicts, expectations. It prints nothing itself.

use std::fmt::{self, Write};

use super::report::{ExpectationResult, Report, RequestRow, VerdictRow};
use super::time::Time;
use super::timeline::{Source, TimelineEntry};

/// How much of a digest is shown.
const DIGEST: usize = 12;

/// A report, ready to be shown.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// The report.
    pub report: &'a Report,
    /// Whether the reader sees colours.
    pub colours: bool,
}

#[derive(Clone, Copy)]
enum Style {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
    Cyan,
}

impl Shown<'_> {
    fn styled(&self, style: Style, text: &str) -> String {
        if !self.colours {
            return text.to_owned();
        }
        let code = match style {
            Style::Bold => 1,
            Style::Dim => 2,
            Style::Red => 31,
            Style::Green => 32,
            Style::Yellow => 33,
            Style::Cyan => 36,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    fn entry(&self, f: &mut fmt::Formatter<'_>, entry: &TimelineEntry) -> fmt::Result {
        let who = match (entry.source, entry.process) {
            (Source::Agent, Some(process)) => format!("agent {process}"),
            (Source::Agent, None) => "agent".to_owned(),
            (Source::Server, _) => "server".to_owned(),
            (Source::Scenario, _) => "scenario".to_owned(),
            (Source::Kubelet, _) => "kubelet".to_owned(),
        };
        let style = match (entry.source, entry.kind.as_str()) {
            (_, "drifted" | "trouble" | "policy-trouble" | "parked" | "exited") => Style::Red,
            (_, "waiting" | "overridden" | "gave-up" | "tolerated") => Style::Yellow,
            (_, "acknowledgment-saved" | "adopted") => Style::Green,
            (Source::Server, _) => Style::Dim,
            (Source::Scenario, _) => Style::Cyan,
            _ => return writeln!(f, "  {:>12}  {who:<8}  {}", at(entry), entry.text),
        };
        writeln!(f, "  {:>12}  {who:<8}  {}", at(entry), self.styled(style, &entry.text))
    }

    fn table(&self, f: &mut fmt::Formatter<'_>, head: &[&str], rows: &[Vec<String>]) -> fmt::Result {
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([head[column].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        let line = |cells: &[String]| {
            let mut line = String::from(" ");
            for (cell, width) in cells.iter().zip(&widths) {
                // Writing to a String never fails.
                let _ = write!(line, " {cell:<width$} ");
            }
            line.trim_end().to_owned()
        };
        let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
        writeln!(f, "{}", self.styled(Style::Dim, &line(&head)))?;
        rows.iter().try_for_each(|row| writeln!(f, "{}", line(row)))
    }

    fn expectation(&self, f: &mut fmt::Formatter<'_>, result: &ExpectationResult) -> fmt::Result {
        let file = self.report.file.display();
        match &result.found {
            None => writeln!(f, "  {} {}", self.styled(Style::Green, "✓"), result.name),
            Some(found) => {
                let name = self.styled(Style::Bold, &result.name);
                writeln!(f, "  {} {name} ({file}:{})", self.styled(Style::Red, "✗"), result.line)?;
                writeln!(f, "      found: {found}")
            }
        }
    }
}

/// Times in one column: minutes, seconds, milliseconds.
fn at(entry: &TimelineEntry) -> String {
    let millis = entry.at.as_millis();
    format!("{}:{:02}.{:03}", millis / 60_000, millis / 1000 % 60, millis % 1000)
}

fn request_cells(row: &RequestRow) -> Vec<String> {
    let code = row.code.map_or_else(|| "no answer".to_owned(), |code| code.to_string());
    vec![row.verb.to_uppercase(), row.resource.clone(), code, row.count.to_string()]
}

fn verdict_cells(row: &VerdictRow) -> Vec<String> {
    let digest = row.digest.as_deref().unwrap_or("-");
    let digest = digest.strip_prefix("sha256:").unwrap_or(digest);
    vec![
        row.hook.clone(),
        row.policy.clone().unwrap_or_else(|| "-".to_owned()),
        digest.chars().take(DIGEST).collect(),
        row.verdict.clone(),
        row.reason.clone(),
        row.calls.to_string(),
        format!("{:.1} ms", row.time.as_secs_f64() * 1e3),
    ]
}

/// Whether an entry says anything to a reader that its end doesn't say better.
fn is_news(entry: &TimelineEntry) -> bool {
    entry.kind != "request-received"
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.report;
        writeln!(f, "{} — {}", self.styled(Style::Bold, &report.name), report.description)?;
        writeln!(f, "\n{}", self.styled(Style::Bold, "Timeline (virtual time)"))?;
        report.timeline.iter().filter(|entry| is_news(entry)).try_for_each(|entry| self.entry(f, entry))?;
        writeln!(f, "\n{}", self.styled(Style::Bold, "Requests to the API server"))?;
        let rows: Vec<_> = report.requests.iter().map(request_cells).collect();
        self.table(f, &["verb", "resource", "status", "count"], &rows)?;
        writeln!(f, "\n{}", self.styled(Style::Bold, "Verdicts"))?;
        let rows: Vec<_> = report.verdicts.iter().map(verdict_cells).collect();
        self.table(f, &["hook", "policy", "digest", "verdict", "reason", "calls", "time"], &rows)?;
        writeln!(f, "\n{}", self.styled(Style::Bold, "Expectations"))?;
        report.expectations.iter().try_for_each(|result| self.expectation(f, result))?;
        let failed = report.expectations.iter().filter(|result| !result.passed).count();
        let verdict = match failed {
            0 => self.styled(Style::Green, "passed"),
            1 => self.styled(Style::Red, "1 expectation failed"),
            n => self.styled(Style::Red, &format!("{n} expectations failed")),
        };
        let virtual_time = Time(report.virtual_time);
        writeln!(
            f,
            "\n{}: {verdict}, {virtual_time} of virtual time in {:.2} s",
            report.name,
            report.real_time.as_secs_f64()
        )
    }
}
