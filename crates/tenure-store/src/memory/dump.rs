//! The whole state as text, for tests that compare it.

use super::MemoryStore;
use super::spaces::Space;

impl MemoryStore {
    /// Returns the whole state as text: two dumps are equal if and only if nothing changed.
    pub fn dump(&self) -> String {
        let state = self.state();
        let mut lines = vec![format!("{:#?}", *state)];
        // Fields that `Debug` hides.
        for kept in state.items.values() {
            lines.push(kept.event.payload().to_owned());
            lines.push(format!("{:?}", kept.event.headers()));
            let tokens = kept.journal.iter().map(|line| line.token.expose());
            lines.extend(tokens.map(str::to_owned));
        }
        lines.extend(state.leases.keys().map(|token| token.expose().to_owned()));
        let held = state.spaces.values().flat_map(Space::tokens);
        lines.extend(held.map(|token| token.expose().to_owned()));
        lines.join("\n")
    }
}
