//! MIG placement against the tables: the search, and a brute force that tries every subset of all
//! placements.

use cumux_planner::card::{self, CardModel};
use cumux_planner::mig::{MigError, Profile, Table};
use std::collections::BTreeSet;

fn table(id: &str) -> &'static Table {
    let card: &'static CardModel = card::find(id).unwrap();
    card.mig.as_ref().unwrap()
}

/// Every set of names that can be placed, by trying all subsets of (profile, start).
fn by_force(table: &Table, profiles: &[&Profile]) -> BTreeSet<Vec<&'static str>> {
    let places: Vec<(usize, u32)> = profiles
        .iter()
        .enumerate()
        .flat_map(|(number, profile)| profile.starts.iter().map(move |start| (number, ((1u32 << profile.size) - 1) << start)))
        .collect();
    assert!(places.len() < 27, "{} placements are too many for this test", places.len());
    let mut found = BTreeSet::new();
    'subset: for subset in 1u32..1 << places.len() {
        let (mut taken, mut rest) = (0u32, subset);
        while rest != 0 {
            let units = places[rest.trailing_zeros() as usize].1;
            if taken & units != 0 {
                continue 'subset;
            }
            taken |= units;
            rest &= rest - 1;
        }
        let chosen: Vec<&Profile> = (0..places.len()).filter(|bit| subset >> bit & 1 == 1).map(|bit| profiles[places[bit].0]).collect();
        let often = |name: &str| chosen.iter().filter(|profile| profile.name == name).count() as u32;
        let media = chosen.iter().filter(|profile| profile.name.contains("+me")).count();
        let all_media = chosen.iter().any(|profile| profile.name.ends_with(".all"));
        let beside = chosen.iter().filter(|profile| !profile.name.ends_with(".all")).all(|profile| profile.name.ends_with("-me"));
        if taken < 1 << table.grid
            && chosen.iter().all(|profile| often(profile.name) <= profile.most)
            && chosen.iter().map(|profile| profile.compute).sum::<u32>() <= table.compute
            && media <= 1
            && (!all_media || beside)
        {
            let mut names: Vec<&'static str> = chosen.iter().map(|profile| table.profile(profile.name).unwrap().name).collect();
            names.sort_unstable();
            found.insert(names);
        }
    }
    found
}

#[test]
fn the_search_finds_what_brute_force_finds() {
    for id in ["a30", "a100-80", "rtx-pro-6000"] {
        let table = table(id);
        // The graphics profiles have the places of the plain ones: without them, the force
        // suffices.
        let profiles: Vec<&Profile> = table.profiles.iter().filter(|profile| !profile.name.contains("gfx")).collect();
        let searched: BTreeSet<Vec<&str>> = table
            .geometries()
            .iter()
            .map(|geometry| geometry.instances.iter().map(|instance| instance.profile.name).collect::<Vec<_>>())
            .filter(|names| names.iter().all(|name| !name.contains("gfx")))
            .map(|mut names| {
                names.sort_unstable();
                names
            })
            .collect();
        let forced = by_force(table, &profiles);
        assert!(searched.len() > 3, "{id}");
        assert_eq!(searched, forced, "{id}");
    }
}

/// What brute force shows of one card holds for all with the same places.
#[test]
fn cards_with_seven_slices_have_the_same_places() {
    let places = |table: &Table| {
        let mut rows: Vec<_> = table.profiles.iter().map(|it| (it.compute, it.size, it.starts, it.most, it.has_media())).collect();
        rows.sort_unstable();
        rows
    };
    let first = places(table("a100-80"));
    for card in card::all().iter().filter(|card| card.mig.as_ref().is_some_and(|mig| mig.compute == 7)) {
        assert_eq!(places(card.mig.as_ref().unwrap()), first, "{}", card.id);
    }
}

#[test]
fn every_geometry_of_every_card_keeps_the_rules() {
    for card in card::all() {
        let Some(table) = &card.mig else { continue };
        for geometry in table.geometries() {
            let mut units = vec![0u32; table.grid as usize];
            for instance in &geometry.instances {
                assert!(instance.profile.starts.contains(&instance.start), "{}: {geometry}", card.id);
                (instance.start..instance.start + instance.profile.size).for_each(|unit| units[unit as usize] += 1);
            }
            assert!(units.iter().all(|count| *count <= 1), "{}: {geometry}", card.id);
            let memory: u32 = geometry.instances.iter().map(|it| it.profile.memory_mib(table, card.memory_mib)).sum();
            let multiprocessors: u32 = geometry.instances.iter().map(|it| it.profile.multiprocessors(table, card.multiprocessors)).sum();
            assert!(multiprocessors <= card.multiprocessors, "{}: {geometry} has {multiprocessors}", card.id);
            // NVML rounds up the memory of the largest instance.
            assert!(memory <= card.memory_mib + 256, "{}: {geometry} has {memory} of {}", card.id, card.memory_mib);
        }
    }
}

#[test]
fn what_cannot_be_placed_is_refused_with_the_rule() {
    let reason = |id: &str, names: &[&str]| match table(id).place(names.iter().copied()) {
        Err(error) => error.to_string(),
        Ok(geometry) => panic!("{id}: {geometry} was placed"),
    };
    assert!(reason("a100-80", &["4g.40gb", "4g.40gb"]).contains("once"));
    assert!(reason("a100-80", &["3g.40gb", "3g.40gb", "1g.10gb"]).contains("memory slices"));
    assert!(reason("a100-80", &["1g.10gb+me", "1g.10gb+me"]).contains("once"));
    assert!(reason("a30", &["1g.6gb+me", "2g.12gb+me"]).contains("media"));
    assert!(reason("rtx-pro-6000", &["2g.48gb+me.all", "1g.24gb"]).contains("-me"));
    let unknown = reason("a100-80", &["1g.5gb"]);
    assert!(unknown.contains("1g.5gb") && unknown.contains("1g.10gb, 1g.10gb+me"), "{unknown}");
    assert!(matches!(table("a100-80").profile("9g"), Err(MigError::Unknown { .. })));
}

#[test]
fn the_known_geometries_are_there() {
    let full: Vec<String> = table("a100-80").full_geometries().iter().map(ToString::to_string).collect();
    for known in ["7g.80gb", "4g.40gb + 3g.40gb", "3g.40gb + 2x 2g.20gb", "3g.40gb + 2g.20gb + 1g.20gb", "7x 1g.10gb", "4x 1g.20gb"] {
        assert!(full.iter().any(|name| name == known), "{known} is not among {full:?}");
    }
    assert!(!full.iter().any(|name| name.contains("+me")));
    let placed = table("a100-80").place(["3g.40gb", "2g.20gb", "2g.20gb"]).unwrap();
    assert_eq!(placed.instances.iter().map(|instance| instance.start).collect::<Vec<_>>(), [4, 0, 2], "the only way to place them");
}
