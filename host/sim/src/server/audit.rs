//! One record per request, as the API server's audit log has them at stage `ResponseComplete`.

use std::{collections::VecDeque, sync::Arc};

use jiff::Timestamp;
use serde_json::Value;

use super::{Attributes, Verb};

/// What is known of one request. A record exists from the moment that the request arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditRecord {
    /// Counts requests from 1, in order of arrival. Also sent as the header `Audit-Id`.
    pub id: u64,
    /// What was asked, and by whom.
    pub request: Attributes,
    /// The path with its query, as it came.
    pub uri: String,
    /// The body of a PATCH, where it was JSON.
    pub patch: Option<Value>,
    /// When the request arrived.
    pub received: Timestamp,
    /// When the answer was complete: for a watch, when its stream ended on either side.
    pub completed: Option<Timestamp>,
    /// The status code; `None` when no answer was made.
    pub code: Option<u16>,
    /// The reason of the Status that the request was refused with.
    pub reason: Option<String>,
    /// The fault that hit it, in a few words.
    pub fault: Option<String>,
    /// The admission rule that denied it, in a few words.
    pub admission: Option<String>,
}

impl AuditRecord {
    /// The verb as the audit log prints it; the empty word for a path that is no resource.
    pub fn verb(&self) -> &'static str {
        self.request.verb.map_or("", Verb::as_str)
    }
}

/// The newest records, up to a limit.
pub(crate) struct AuditLog {
    records: VecDeque<Arc<AuditRecord>>,
    limit: usize,
    next: u64,
}

impl AuditLog {
    pub(crate) fn new(limit: usize) -> Self {
        Self { records: VecDeque::new(), limit, next: 0 }
    }

    pub(crate) fn open(&mut self, request: Attributes, uri: String, received: Timestamp) -> Arc<AuditRecord> {
        self.next += 1;
        let record = Arc::new(AuditRecord {
            id: self.next,
            request,
            uri,
            patch: None,
            received,
            completed: None,
            code: None,
            reason: None,
            fault: None,
            admission: None,
        });
        self.records.push_back(record.clone());
        while self.records.len() > self.limit {
            self.records.pop_front();
        }
        record
    }

    /// Changes a record, if it is still kept.
    pub(crate) fn amend(&mut self, id: u64, amend: impl FnOnce(&mut AuditRecord)) -> Option<Arc<AuditRecord>> {
        let first = self.records.front()?.id;
        let at = usize::try_from(id.checked_sub(first)?).ok()?;
        let record = self.records.get_mut(at)?;
        amend(Arc::make_mut(record));
        Some(record.clone())
    }

    pub(crate) fn snapshot(&self) -> Vec<Arc<AuditRecord>> {
        self.records.iter().cloned().collect()
    }
}
