//! The planner's cards beside the software GPU's models of the same cards.

use cumux_abi::CUdevice_attribute as A;
use cumux_planner::card;

#[test]
fn cards_are_those_that_the_software_gpu_models() {
    for id in ["h200", "a100-80", "a100", "l4", "t4", "b300"] {
        let card = card::find(&format!("sim:{id}")).unwrap();
        let facts = cumux_device_sim::facts(&format!("sim:{id}")).unwrap();
        let value = |attribute: A| u64::try_from(facts.attribute(attribute)).unwrap();
        assert_eq!(u64::from(card.multiprocessors), value(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), "{id}");
        assert_eq!(u64::from(card.clock_khz), value(A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE), "{id}");
        assert_eq!(card.cache, value(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE), "{id}");
        assert_eq!(u64::from(card.each.threads), value(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR), "{id}");
        assert_eq!(u64::from(card.each.blocks), value(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR), "{id}");
        assert_eq!(u64::from(card.each.shared), value(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR), "{id}");
        assert_eq!(u64::from(card.memory_mib), facts.memory >> 20, "{id}");
        if id != "b300" {
            // Two transfers a clock, eight bits a byte. The model's B300 has the clock of its
            // pattern.
            let bandwidth = value(A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) * 1000 * 2 * value(A::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8;
            assert_eq!(card.bandwidth, bandwidth, "{id}");
        }
    }
}

#[test]
fn an_unknown_card_is_answered_with_the_list() {
    let error = card::find("a200").unwrap_err().to_string();
    assert!(error.contains("\"a200\"") && card::all().iter().all(|card| error.contains(card.id)), "{error}");
}

#[test]
fn a_card_is_found_by_its_own_name_and_by_the_drivers() {
    for card in card::all() {
        for name in [card.id, card.name, &card.name.to_uppercase()] {
            assert_eq!(card::find(name).unwrap().id, card.id, "{name}");
        }
    }
}
