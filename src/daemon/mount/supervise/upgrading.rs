//! The change to another program that serves a mount. Imports the supervisor above it, whose part it is.

use super::Supervision;
use crate::daemon::mount::limits;
use crate::daemon::mount::program::Program;
use crate::daemon::mount::running::{Role, Running, obstacle};
use crate::daemon::notify;
use crate::daemon::upgrade::{self, Refusal};
use crate::failure::{Exit, Failure};
use crate::io::process;
use crate::io::process::workers::Ending;

impl Supervision<'_> {
    /// The reason why no other program can serve now.
    pub(super) fn obstacle(&self) -> Option<&'static str> {
        obstacle(self.told.as_ref(), self.is_leaving)
    }

    /// Starts the program that is at its path now, to serve in place of the one that does. If the same program is starting
    /// already, that upgrade answers both requests; if another one is, this upgrade begins once that one has ended.
    pub(super) fn upgrade(&mut self) {
        process::set_name(upgrade::BUSY);
        if let Some(why) = self.obstacle() {
            return self.refuse(Refusal::Refused, why);
        }
        let program = match self.programs.now() {
            Ok(program) => program,
            Err(error) => return self.refuse(Refusal::NoProgram, &error.to_string()),
        };
        for running in &mut self.workers {
            match &running.role {
                Role::Follows(other) if program.is(other) => return,
                // Perhaps that program would never serve, and was replaced for that reason.
                Role::Follows(_) => running.kill(),
                Role::Leaves => {}
                Role::Serves => continue,
            }
            self.is_upgrade_due = true;
        }
        if !self.is_upgrade_due
            && let Err(error) = self.start(Some(program))
        {
            let failure = limits::explain(Failure::new(Exit::Mount, error), self.request);
            self.refuse(Refusal::Lacking, &failure.to_string());
        }
    }

    /// Notes that a program that was to take over serves.
    pub(super) fn has_followed(&mut self, program: Program, pid: i32) {
        tracing::info!("{}: another program serves, as process {pid}", self.target);
        self.programs.serving = Some(program);
        self.settle();
    }

    /// Notes that a program that was to take over has ended before it served.
    pub(super) fn follower_ended(&mut self, refusal: Refusal, ending: Ending) {
        if self.is_upgrade_due {
            tracing::info!("{}: yet another program is to take over", self.target);
            return self.settle();
        }
        let why = match refusal {
            Refusal::Late => {
                format!("it has not served for {} s, and was ended", upgrade::starting().as_secs())
            }
            Refusal::Lacking => {
                format!("it has ended {ending}, for lack of what its message names")
            }
            _ => format!("it has ended {ending}"),
        };
        self.refuse(refusal, &why);
    }

    /// Goes on once no program is taking over any more: begins the next upgrade, or shows that this one is done, which
    /// `ffrfs upgrade` waits for.
    pub(super) fn settle(&mut self) {
        if self.workers.iter().any(Running::is_changing) {
            return;
        }
        if std::mem::take(&mut self.is_upgrade_due) {
            return self.upgrade();
        }
        self.upgrades += 1;
        process::set_name(&upgrade::done(self.upgrades));
    }

    /// Shows that an upgrade has failed.
    fn refuse(&mut self, refusal: Refusal, why: &str) {
        tracing::error!("{}: no other program takes over: {why}", self.target);
        self.upgrades += 1;
        process::set_name(&refusal.name(self.upgrades));
        if let Some(told) = &self.told {
            notify::ready(&told.status);
        }
        self.pass_on_hangup();
    }
}
