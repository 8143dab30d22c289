//! Address ranges for virtual memory: reservation, mapping, access.
//!
//! Each mapping has bytes of its own: two mappings of one handle do not share contents, and unmapping discards them.

use super::SimMachine;
use super::access::Access;
use super::outside::{OutsideRange, Role};
use super::virtual_memory::GRANULARITY;
use crate::code::{Answer, INVALID_VALUE, OUT_OF_MEMORY, demand};
use crate::memory::{SimBlock, Span};
use crate::own::PAGE;

/// An address range that a program reserved.
#[derive(Debug)]
pub(crate) struct Reservation {
    span: Span,
    /// Requested bytes.
    size: u64,
}

impl SimMachine {
    pub(crate) fn reserve_addresses(&mut self, size: u64, alignment: u64) -> Answer<u64> {
        let is_aligned = alignment == 0 || alignment.is_power_of_two();
        demand(size > 0 && size.is_multiple_of(PAGE as u64) && is_aligned)?;
        let span = Span::reserve(size, alignment.max(GRANULARITY)).ok_or(OUT_OF_MEMORY)?;
        let address = span.base;
        self.reservations.push(Reservation { span, size });
        Ok(address)
    }

    /// Frees addresses. This fails if they have mappings (assumed).
    pub(crate) fn free_addresses(&mut self, address: u64, size: u64) -> Answer {
        let is_it = |found: &Reservation| found.span.base == address && found.size == size;
        let index = self.reservations.iter().position(is_it).ok_or(INVALID_VALUE)?;
        demand(self.outside_within(address, size).next().is_none())?;
        self.reservations.swap_remove(index).span.release();
        Ok(())
    }

    pub(crate) fn map(&mut self, address: u64, size: u64, handle: u64, context: u64) -> Answer {
        let memory = self.virtual_memory(handle)?;
        let end = address.checked_add(size).ok_or(INVALID_VALUE)?;
        let fits = |found: &Reservation| found.span.contains(address) && end <= found.span.base + found.size;
        let is_reserved = self.reservations.iter().any(fits);
        let is_aligned = address.is_multiple_of(GRANULARITY) && size.is_multiple_of(GRANULARITY);
        let is_free = self.outside_within(address, size).next().is_none();
        demand(is_reserved && is_aligned && is_free && size > 0 && size <= memory.size)?;
        self.virtuals.get_mut(&handle).ok_or(INVALID_VALUE)?.mappings += 1;
        let block = SimBlock { address, size, taken: size, kind: memory.kind, context, id: 0 };
        let (role, access) = (Role::Mapping(handle), Access::default());
        self.put_outside(OutsideRange { device: memory.device, block, role, access });
        Ok(())
    }

    /// Unmaps whole mappings that fill a range.
    pub(crate) fn unmap(&mut self, address: u64, size: u64, context: u64) -> Answer {
        self.check_filled(address, size)?;
        let end = address + size;
        let mut at = address;
        while at < end {
            let found = self.remove_outside(at)?;
            at = found.block.end();
            Span::close(found.block.address, found.block.size);
            let Role::Mapping(handle) = found.role else { return Err(INVALID_VALUE) };
            self.virtuals.get_mut(&handle).ok_or(INVALID_VALUE)?.mappings -= 1;
            self.drop_if_unused(handle, context)?;
        }
        Ok(())
    }

    /// Sets the access rights of a device in the mappings that fill a range.
    pub(crate) fn set_access(&mut self, address: u64, size: u64, device: usize, flags: u64) -> Answer {
        self.check_filled(address, size)?;
        let last = self.outside.partition_point(|found| found.block.address < address + size);
        let first = self.outside.partition_point(|found| found.block.address < address);
        for found in self.outside.iter_mut().take(last).skip(first) {
            if !found.access.is_open() && flags != 0 && !Span::open(found.block.address, found.block.size) {
                return Err(OUT_OF_MEMORY);
            }
            found.access.set(device, flags);
        }
        Ok(())
    }

    pub(crate) fn access(&self, address: u64, device: usize) -> Answer<u64> {
        self.mapped_at(address)?;
        Ok(self.outside_around(address).ok_or(INVALID_VALUE)?.access.of(device))
    }

    /// The handle of the memory mapped at an address.
    pub(crate) fn mapped_at(&self, address: u64) -> Answer<u64> {
        match self.outside_around(address).map(|found| found.role) {
            Some(Role::Mapping(handle)) => Ok(handle),
            _ => Err(INVALID_VALUE),
        }
    }

    /// Fails unless whole mappings fill a range without a gap.
    fn check_filled(&self, address: u64, size: u64) -> Answer {
        let end = address.checked_add(size).filter(|end| *end > address).ok_or(INVALID_VALUE)?;
        let mut at = address;
        while at < end {
            self.mapped_at(at)?;
            at = self.outside_at(at).ok_or(INVALID_VALUE)?.block.end();
        }
        if at == end { Ok(()) } else { Err(INVALID_VALUE) }
    }
}
