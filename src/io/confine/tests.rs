use super::*;

#[test]
fn an_outcome_names_what_holds_and_why_the_rest_does_not() {
    let mut outcome = Outcome::default();
    outcome.note(Measure::Files, Ok(()));
    outcome.note(Measure::Network, Err("no ports".to_owned()));
    outcome.note(Measure::Calls, Ok(()));
    assert_eq!(outcome.to_string(), "files, system calls; not network: no ports");
}

#[test]
fn filters_can_be_made_for_all_rules() {
    let ports = Network::Ports([443].into());
    for network in [Network::Nobody, ports, Network::Everybody] {
        for starts_programs in [false, true] {
            let rules = Rules { network: network.clone(), starts_programs, ..Rules::default() };
            assert_eq!(calls::filters(&rules).err(), None);
        }
    }
}
