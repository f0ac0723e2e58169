//! Labels: jumps may come before the label, and a label belongs to the innermost `{ }`.
//!
//! A name that a scope mentions but does not define is handed to the scope around it when the scope
//! ends; both then share one target.

use crate::ast::{Label, LabelId, Pos};
use std::collections::HashMap;

struct LabelEntry<'s> {
    name: &'s str,
    pos: Pos,
    target: Option<u32>,
    /// The label of an outer scope that this one turned out to be.
    same_as: Option<LabelId>,
}

#[derive(Default)]
pub(super) struct Labels<'s> {
    entries: Vec<LabelEntry<'s>>,
    scopes: Vec<HashMap<&'s str, LabelId>>,
}

impl<'s> Labels<'s> {
    pub(super) fn enter_scope(&mut self) {
        self.scopes.push(HashMap::new());
    }

    fn find_or_add(&mut self, name: &'s str, pos: Pos) -> LabelId {
        let next = LabelId(self.entries.len() as u32);
        let id = match self.scopes.last_mut() {
            Some(scope) => *scope.entry(name).or_insert(next),
            None => next,
        };
        if id == next {
            self.entries.push(LabelEntry { name, pos, target: None, same_as: None });
        }
        id
    }

    /// A jump to `name`.
    pub(super) fn mention(&mut self, name: &'s str, pos: Pos) -> LabelId {
        self.find_or_add(name, pos)
    }

    /// `name:` in front of instruction `target`; the place of the first one if it is taken.
    pub(super) fn define(&mut self, name: &'s str, pos: Pos, target: u32) -> Result<(), Pos> {
        let id = self.find_or_add(name, pos);
        let entry = &mut self.entries[id.index()];
        if entry.target.is_some() {
            return Err(entry.pos);
        }
        entry.target = Some(target);
        entry.pos = pos;
        Ok(())
    }

    pub(super) fn leave_scope(&mut self) {
        let Some(inner) = self.scopes.pop() else {
            return;
        };
        let Some(outer) = self.scopes.last_mut() else {
            return;
        };
        for (name, id) in inner {
            if self.entries[id.index()].target.is_some() {
                continue;
            }
            let outer_id = *outer.entry(name).or_insert(id);
            if outer_id != id {
                self.entries[id.index()].same_as = Some(outer_id);
            }
        }
    }

    /// All labels, or those that were never defined.
    pub(super) fn finish(self) -> Result<Vec<Label>, Vec<(&'s str, Pos)>> {
        let mut missing = Vec::new();
        let mut labels = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            let mut last = entry;
            while let Some(id) = last.same_as {
                last = &self.entries[id.index()];
            }
            match last.target {
                Some(target) => labels.push(Label { pos: last.pos, name: entry.name.into(), target }),
                None => missing.push((entry.name, entry.pos)),
            }
        }
        if missing.is_empty() {
            Ok(labels)
        } else {
            missing.sort_by_key(|(_, pos)| *pos);
            missing.dedup_by_key(|(name, _)| *name);
            Err(missing)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POS: Pos = Pos { line: 1, col: 1 };

    #[test]
    fn inner_labels_hide_outer_ones_and_outer_ones_are_reached() {
        let mut labels = Labels::default();
        labels.enter_scope();
        let out = labels.mention("OUT", POS);
        labels.enter_scope();
        let inner_wait = labels.mention("WAIT", POS);
        labels.define("WAIT", POS, 3).unwrap();
        let inner_out = labels.mention("OUT", POS);
        labels.leave_scope();
        labels.define("WAIT", POS, 5).unwrap();
        labels.define("OUT", POS, 9).unwrap();
        assert_eq!(labels.define("OUT", POS, 10), Err(POS));
        labels.leave_scope();
        let done = labels.finish().unwrap();
        assert_eq!(done[inner_wait.index()].target, 3);
        assert_eq!(done[out.index()].target, 9);
        assert_eq!(done[inner_out.index()].target, 9);
    }

    #[test]
    fn a_label_of_a_sibling_scope_is_not_reached() {
        let mut labels = Labels::default();
        labels.enter_scope();
        labels.enter_scope();
        labels.define("L", POS, 0).unwrap();
        labels.leave_scope();
        labels.enter_scope();
        labels.mention("L", POS);
        labels.leave_scope();
        labels.leave_scope();
        assert_eq!(labels.finish().unwrap_err(), [("L", POS)]);
    }
}
