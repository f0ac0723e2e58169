//! What a context makes when a kernel needs it for the first time: the buffer for the text that
//! kernels print, and local memory. The driver waits for all kernels of the context then, so beside
//! a kernel that does not end nobody's work goes on ([decision 0124]). Both are made while the card
//! is quiet: the buffer when a module is loaded whose kernels print, local memory when a kernel is
//! launched that needs more than there is. A context that needs neither has half of the memory of
//! one that is made as the driver makes it ([decision 0135]).
//!
//! [decision 0124]: ../../../../docs/decisions/0124-as-many-busy-streams-as-queues.md
//! [decision 0135]: ../../../../docs/decisions/0135-a-context-begins-without-a-stack.md

#[cfg(test)]
use super::capture::FIRST_TEXT;
use super::context::Driver;
use super::handle::{Function, Stream};
use super::launch::LaunchShape;
use super::made::Made;
use super::module::CompileError;
use super::nested::is_nested;
use crate::fault::{Call, CudaError};
use cumux_abi::CUlimit;
use std::time::{Duration, Instant};

/// Local memory is made in steps of so many bytes a thread. A card with 132 SMs has 270,336
/// threads, so a step is 32 MiB there.
const STEP: u64 = 128;

/// How many bytes of local memory are made for a kernel that needs so many: a quarter more than
/// there were before at least. Each time the card has to be quiet, and the context stands for a
/// moment.
fn next_local(made: u64, needed: u64) -> u64 {
    needed.max(made + made / 4).next_multiple_of(STEP)
}

/// Up to the stack's usual size there are few steps: kernels of most programs need little or none.
fn next_limit(limit: u64, needed: u64) -> u64 {
    needed.max(2 * limit).next_power_of_two().max(STEP)
}

/// How long memory of the card is expected that a lost executor gives back when it ends.
const PREDECESSOR_ENDS: Duration = Duration::from_secs(5);

/// The driver's own stack of a thread.
const USUAL_STACK: u64 = 1024;
/// Bytes of the buffer for printed text. The driver's own is 1 MiB.
const PRINTING_BYTES: u64 = 8 << 20;

/// A kernel that prints a line, by which it is known: nobody gets that.
const PRINTS: &str = "
.version 7.0
.target sm_75
.address_size 64
.extern .func (.param .b32 written) vprintf(.param .b64 format, .param .b64 arguments);
.global .align 1 .b8 cumux_text[23] = {1, 99, 117, 109, 117, 120, 58, 32, 116, 104, 101, 32, 102, 105, 114, 115, 116, 32, 116, 101, 120, 116, 0};
.visible .entry cumux_print(.param .u64 at)
{
    .local .align 16 .b8 room[16];
    .reg .b64 %rd<7>;
    mov.u64 %rd1, cumux_text;
    cvta.global.u64 %rd2, %rd1;
    ld.param.u64 %rd3, [at];
    mov.u64 %rd4, room;
    add.u64 %rd5, %rd4, %rd3;
    st.local.u64 [%rd5], %rd3;
    cvta.local.u64 %rd6, %rd5;
    {
        .param .b64 format;
        .param .b64 arguments;
        .param .b32 written;
        st.param.b64 [format], %rd2;
        st.param.b64 [arguments], %rd6;
        call.uni (written), vprintf, (format, arguments);
    }
    ret;
}
";

/// A kernel with so many bytes of local memory, at least one word of them.
fn source_of_local(bytes: u64) -> String {
    let bytes = bytes.max(16);
    format!(
        "
.version 7.0
.target sm_75
.address_size 64
.visible .entry cumux_local(.param .u32 first, .param .u32 second)
{{
    .local .align 16 .b8 room[{bytes}];
    .reg .b32 %r<4>;
    .reg .b64 %rd<6>;
    .reg .pred %p;
    ld.param.u32 %r1, [first];
    ld.param.u32 %r2, [second];
    mov.u64 %rd1, room;
    cvt.u64.u32 %rd2, %r1;
    cvt.u64.u32 %rd3, %r2;
    add.u64 %rd4, %rd1, %rd2;
    add.u64 %rd5, %rd1, %rd3;
    st.local.u32 [%rd4], %r1;
    ld.local.u32 %r3, [%rd5];
    setp.ne.u32 %p, %r3, %r1;
    @%p trap;
    ret;
}}
"
    )
}

impl Driver {
    /// Bytes of local memory that each thread can have without anybody's waiting for it.
    pub(crate) fn local_memory(&self) -> u64 {
        self.made.lock().local
    }

    /// As [`Driver::local_memory`], without waiting for who makes some; `None` while somebody does.
    pub(crate) fn local_memory_now(&self) -> Option<u64> {
        self.made.try_lock().map(|made| made.local)
    }

    /// Makes local memory of at least so many bytes a thread. It stays. Call this while the card is
    /// quiet, because the driver waits for running kernels.
    ///
    /// # Errors
    /// The driver's, above all that the card has no room for it.
    pub(crate) fn grow_local_memory(&self, bytes: u64) -> Call<()> {
        let mut made = self.made.lock();
        if bytes <= made.local {
            return Ok(());
        }
        if made.limit < made.stack {
            self.raise_stack(&mut made, bytes)?;
        }
        if bytes <= made.local {
            return Ok(());
        }
        let (least, wanted) = (bytes.next_multiple_of(STEP), next_local(made.local, bytes));
        let bytes = match self.make_local(wanted) {
            Ok(()) => wanted,
            Err(_) if wanted > least => self.make_local(least).map(|()| least)?,
            Err(error) => return Err(error),
        };
        made.local = bytes;
        tracing::debug!(bytes, "the context has more local memory for each thread");
        Ok(())
    }

    /// Notes that a kernel needs so much that was loaded before its client came.
    pub(crate) fn await_local_memory(&self, bytes: u64) {
        let mut made = self.made.lock();
        made.awaited = made.awaited.max(bytes);
    }

    /// Makes what kernels need that were loaded before their clients came. Call this before any
    /// kernel runs. The card may have no room for it before a lost executor has ended.
    pub(crate) fn make_awaited(&self) {
        let bytes = self.made.lock().awaited;
        if bytes == 0 {
            return;
        }
        self.made.lock().more_until = Some(Instant::now() + PREDECESSOR_ENDS);
        if let Err(error) = self.grow_local_memory(bytes) {
            tracing::debug!(bytes, "local memory is made when a kernel needs it: {}", self.describe_numbered(error));
        }
    }

    /// True if a lost executor may still give memory of the card back.
    pub(crate) fn expects_memory(&self) -> bool {
        self.made.lock().more_until.is_some_and(|until| Instant::now() < until)
    }

    /// Raises the driver's figure for the stack of a thread, up to the usual one: the driver has as
    /// much local memory of each thread then. That takes less time than a kernel that needs it.
    fn raise_stack(&self, made: &mut Made, bytes: u64) -> Call<()> {
        let (least, wanted) = (bytes.next_multiple_of(STEP).min(made.stack), next_limit(made.limit, bytes).min(made.stack));
        let raised = match self.set_limit(CUlimit::CU_LIMIT_STACK_SIZE, wanted) {
            Err(_) if wanted > least => self.set_limit(CUlimit::CU_LIMIT_STACK_SIZE, least).map(|()| least)?,
            set => set.map(|()| wanted)?,
        };
        made.limit = raised;
        made.local = made.local.max(raised);
        tracing::debug!(bytes = raised, "the context has a stack for each thread");
        Ok(())
    }

    fn make_local(&self, bytes: u64) -> Call<()> {
        let module = self.load_module(source_of_local(bytes).as_bytes()).map_err(|CompileError { error, .. }| error)?;
        let run = || -> Call<()> {
            let function = *self.functions(module)?.first().ok_or(CudaError::INVALID_VALUE)?;
            self.load_function(function)?;
            self.run_once(function, &[0; 8])
        };
        let ran = run();
        self.unload_module(module);
        ran
    }

    /// Prepares a context in which no kernel has run: it gets a larger buffer for printed text than
    /// the driver would make, once that is made, and no stack until a kernel needs one.
    pub(crate) fn begin_small(&self) {
        let raised = match self.limit(CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE) {
            Ok(bytes) if bytes >= PRINTING_BYTES => Ok(()),
            Ok(_) => self.set_limit(CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE, PRINTING_BYTES),
            Err(error) => Err(error),
        };
        if let Err(error) = raised {
            tracing::warn!("the buffer for what kernels print stays as small as the driver makes it: {}", self.describe_numbered(error));
        }
        let stack = self.limit(CUlimit::CU_LIMIT_STACK_SIZE).unwrap_or(USUAL_STACK);
        let limit = self.set_limit(CUlimit::CU_LIMIT_STACK_SIZE, 0).map_or(stack, |()| 0);
        *self.made.lock() = Made { local: limit, stack, limit, ..Made::default() };
    }

    /// Has the context make what printing needs, by a kernel that prints: it is one of those whose
    /// text nobody gets. Call this while the card is quiet. The size of the buffer cannot be
    /// changed any more then.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn make_printing(&self) -> Call<()> {
        let mut made = self.made.lock();
        if made.printing {
            return Ok(());
        }
        // It stays loaded, with what the driver has made for it.
        let module = self.load_module(PRINTS.as_bytes()).map_err(|CompileError { error, .. }| error)?;
        let function = *self.functions(module)?.first().ok_or(CudaError::INVALID_VALUE)?;
        self.load_function(function)?;
        self.run_once(function, &[0; 8])?;
        made.printing = true;
        tracing::debug!("the context can print");
        Ok(())
    }

    /// Bytes of the stack of a thread, where nobody knows how many its kernel uses.
    pub(crate) fn stack(&self) -> u64 {
        self.made.lock().stack
    }

    /// Whether this limit can be raised to this value at all. The buffer for printed text cannot,
    /// also where nobody has printed: a successor may have printed before its clients come.
    pub(crate) fn may_raise(&self, limit: CUlimit, value: u64) -> bool {
        limit != CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE || self.limit(limit).is_ok_and(|bytes| value <= bytes)
    }

    /// Raises the stack of a thread, because a client asks for it. Call this while the card is
    /// quiet.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn set_stack(&self, bytes: u64) -> Call<()> {
        let mut made = self.made.lock();
        if bytes <= made.stack {
            return Ok(());
        }
        self.set_limit(CUlimit::CU_LIMIT_STACK_SIZE, bytes)?;
        *made = Made { stack: bytes, limit: bytes, local: made.local.max(bytes), ..*made };
        Ok(())
    }

    /// Runs a kernel with one thread in the primary context and in each engine's own, and waits for
    /// its end.
    fn run_once(&self, function: Function, parameters: &[u8]) -> Call<()> {
        let run_in = |stream: Stream| {
            let ran = self.launch(function, &LaunchShape::single_thread(), parameters, stream).and_then(|()| self.synchronize(stream));
            self.destroy_stream(stream);
            ran
        };
        run_in(self.create_stream(0)?)?;
        (0..self.engine_contexts()).try_for_each(|engine| run_in(self.create_engine_stream(engine, 0)?))
    }

    /// To be called before kernels are launched: with the bytes of local memory of each, and
    /// whether it may print. NVIDIA's driver waits for every kernel of the context where something
    /// is missing. Where its place is taken by cumux's own library, this does.
    ///
    /// # Errors
    /// The driver's.
    #[inline]
    pub(crate) fn make_first_uses_as_a_card_would<I: Iterator<Item = (u64, bool)>>(&self, kernels: impl FnOnce() -> I) -> Call<()> {
        if is_nested() { kernels().try_for_each(|(local, prints)| self.wait_for_first_uses(local, prints)) } else { Ok(()) }
    }

    fn wait_for_first_uses(&self, local: u64, prints: bool) -> Call<()> {
        let mut made = self.made.lock();
        let after = Made { local: made.local.max(local), printing: made.printing || prints, ..*made };
        if after != *made {
            let _turn = self.submission.enter_alone();
            // SAFETY: no memory is handed over.
            CudaError::check(unsafe { (self.table()?.cuCtxSynchronize)() })?;
            *made = after;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_memory_grows_by_a_quarter_at_least() {
        assert_eq!((next_local(1024, 1040), next_local(1024, 1280), next_local(1024, 5000)), (1280, 1280, 5120));
        let (_, steps) = (1..=100)
            .map(|kernel| 1024 + 64 * kernel)
            .fold((1024, 0), |(made, steps), needed| if needed <= made { (made, steps) } else { (next_local(made, needed), steps + 1) });
        assert!(steps <= 10, "{steps} stops for a hundred kernels of different sizes");
    }

    #[test]
    fn there_are_few_steps_up_to_the_usual_stack() {
        assert_eq!((next_limit(0, 8), next_limit(128, 200), next_limit(128, 700), next_limit(512, 520)), (128, 256, 1024, 1024));
    }

    #[test]
    fn the_text_that_nobody_gets_is_the_one_that_is_printed() {
        let printed: Vec<String> = FIRST_TEXT.iter().map(u8::to_string).collect();
        assert!(PRINTS.contains(&format!("cumux_text[{}] = {{{}, 0}};", FIRST_TEXT.len() + 1, printed.join(", "))));
    }

    #[test]
    fn the_kernel_has_the_local_memory_that_is_asked_for() {
        for (asked, has) in [(0, 16), (16, 16), (128, 128), (65_536, 65_536)] {
            assert!(source_of_local(asked).contains(&format!(".b8 room[{has}];")));
        }
    }
}
