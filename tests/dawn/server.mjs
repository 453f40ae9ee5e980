// Dawn, the WebGPU of Chromium, as a process that tests speak with: one device, requests and answers one after the other
// over a local connection to the port that is given (Dawn itself writes to standard output).
//
// A request is two u32 (bytes of the text, bytes of the data), the text (a JSON object) and the data; an answer is two u32
// (0 for done, 1 for refused; bytes of the data) and the data. What is refused is told in words.

import { once } from 'node:events';
import { connect } from 'node:net';
import { create, globals } from 'webgpu';

Object.assign(globalThis, globals);

// What the floor tier takes for granted; a device of the compatibility level has less unless it is asked for more.
const WEBGPU_DEFAULTS = {
    maxStorageBufferBindingSize: 128 << 20,
    maxBufferSize: 256 << 20,
    maxComputeWorkgroupStorageSize: 16384,
    maxComputeInvocationsPerWorkgroup: 256,
    maxComputeWorkgroupSizeX: 256,
    maxComputeWorkgroupsPerDimension: 65535,
    maxStorageBuffersPerShaderStage: 8,
};

const tests = connect({ host: '127.0.0.1', port: Number(process.argv[2]), noDelay: true });
// Tests that are gone need no more answers.
tests.on('error', () => process.exit(1));
await once(tests, 'connect');

let gpu, device;
const buffers = new Map();
const pipelines = new Map();
// What the device reports beside the scopes below: the next answer tells it.
const reported = [];

function buffer(id) {
    const found = buffers.get(id);
    if (!found) throw new Error(`buffer ${id} is not there`);
    return found;
}

/** Runs `body` and fails with what the device objects to in it. */
async function scoped(body) {
    for (const filter of ['validation', 'internal', 'out-of-memory']) device.pushErrorScope(filter);
    let value, thrown;
    try {
        value = await body();
    } catch (error) {
        thrown = error;
    }
    const errors = [];
    for (let at = 0; at < 3; at++) errors.push(await device.popErrorScope());
    const error = errors.find((e) => e) ?? thrown;
    if (error) throw new Error(error.message);
    return value;
}

const operations = {
    /** Opens a device with `features`; answers adapter, driver and limits, one `name value` a line. */
    async open({ backend, level, features }) {
        gpu = create([`backend=${backend}`]);
        const adapter = await gpu.requestAdapter({ featureLevel: level });
        if (!adapter) throw new Error(`Dawn has no adapter for ${backend}`);
        const missing = features.filter((name) => !adapter.features.has(name));
        if (missing.length) throw new Error(`Dawn's adapter for ${backend} has no ${missing.join(', ')}`);
        device = await adapter.requestDevice({ requiredFeatures: features, requiredLimits: WEBGPU_DEFAULTS });
        device.addEventListener('uncapturederror', (event) => reported.push(event.error.message));
        device.lost.then((info) => reported.push(`the device is lost: ${info.message}`));
        const names = [...Object.keys(WEBGPU_DEFAULTS), 'minStorageBufferOffsetAlignment'];
        const lines = names.map((name) => `${name} ${device.limits[name]}`);
        const { device: name, description } = adapter.info;
        return [`adapter ${name}`, `driver ${description}`, ...lines].join('\n');
    },

    /** Compiles the data, a module; a warning is a refusal. `bindings` are storage buffers, `r` or `w` each. */
    async prepare({ id, block, bindings, unzeroed }, data) {
        const code = data.toString();
        const module = await scoped(async () => {
            const module = device.createShaderModule({ code });
            const { messages } = await module.getCompilationInfo();
            const bad = messages.filter((m) => m.type !== 'info');
            if (bad.length) {
                const lines = code.split('\n');
                const line = (m) => `${m.type} at line ${m.lineNum}, \`${(lines[m.lineNum - 1] ?? '').trim()}\`: ${m.message}`;
                throw new Error(bad.map(line).join('\n'));
            }
            return module;
        });
        pipelines.set(id, await scoped(async () => {
            const visibility = GPUShaderStage.COMPUTE;
            const uniform = { type: 'uniform', hasDynamicOffset: true, minBindingSize: block };
            const storages = [...bindings].map((b, at) => {
                const buffer = { type: b === 'r' ? 'read-only-storage' : 'storage' };
                return { binding: at + 1, visibility, buffer };
            });
            const layout = device.createBindGroupLayout({ entries: [{ binding: 0, visibility, buffer: uniform }, ...storages] });
            const pipeline = device.createComputePipeline({
                layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
                compute: { module, entryPoint: 'main' },
            });
            return { pipeline, layout, block };
        }));
    },

    async alloc({ id, bytes }) {
        const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
        buffers.set(id, await scoped(() => device.createBuffer({ size: bytes, usage })));
    },

    free({ id }) {
        buffers.get(id)?.destroy();
        buffers.delete(id);
    },

    async write({ id, offset }, data) {
        await scoped(() => device.queue.writeBuffer(buffer(id), offset, data));
    },

    /** Commands `[pipeline, x, y, [buffer, offset, bytes]...]`; the data holds a block of parameters each, 256 bytes apart. */
    async submit({ commands }, data) {
        await scoped(() => {
            const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
            const uniform = device.createBuffer({ size: Math.max(data.length, 256), usage });
            device.queue.writeBuffer(uniform, 0, data);
            const encoder = device.createCommandEncoder();
            const pass = encoder.beginComputePass();
            commands.forEach(([id, x, y, ...slices], number) => {
                const { pipeline, layout, block } = pipelines.get(id);
                const storages = slices.map(([of, offset, size], at) => {
                    return { binding: at + 1, resource: { buffer: buffer(of), offset, size } };
                });
                const entries = [{ binding: 0, resource: { buffer: uniform, size: block } }, ...storages];
                pass.setPipeline(pipeline);
                pass.setBindGroup(0, device.createBindGroup({ layout, entries }), [256 * number]);
                pass.dispatchWorkgroups(x, y, 1);
            });
            pass.end();
            device.queue.submit([encoder.finish()]);
            uniform.destroy();
        });
    },

    async read({ id, offset, bytes }) {
        return scoped(async () => {
            const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
            const staging = device.createBuffer({ size: bytes, usage });
            const encoder = device.createCommandEncoder();
            encoder.copyBufferToBuffer(buffer(id), offset, staging, 0, bytes);
            device.queue.submit([encoder.finish()]);
            await staging.mapAsync(GPUMapMode.READ);
            const copy = Buffer.from(new Uint8Array(staging.getMappedRange()));
            staging.destroy();
            return copy;
        });
    },
};

/** Requests with their data, until the connection ends. */
async function* requests() {
    let held = [], have = 0;
    const input = tests[Symbol.asyncIterator]();
    const take = async (count) => {
        while (have < count) {
            const { value, done } = await input.next();
            if (done) return null;
            held.push(value);
            have += value.length;
        }
        const all = Buffer.concat(held);
        held = [all.subarray(count)];
        have -= count;
        return all.subarray(0, count);
    };
    for (;;) {
        const sizes = await take(8);
        if (!sizes) return;
        const text = await take(sizes.readUInt32LE(0));
        const data = text && (await take(sizes.readUInt32LE(4)));
        if (!data) return;
        yield [JSON.parse(text.toString()), data];
    }
}

function answer(status, data) {
    const head = Buffer.alloc(8);
    head.writeUInt32LE(status, 0);
    head.writeUInt32LE(data.length, 4);
    tests.write(Buffer.concat([head, data]));
}

for await (const [request, data] of requests()) {
    try {
        const said = Buffer.from((await operations[request.op](request, data)) ?? '');
        if (reported.length) throw new Error(reported.join('\n'));
        answer(0, said);
    } catch (error) {
        answer(1, Buffer.from(error.message));
    }
}
// Dawn's threads would keep the process.
process.exit(0);
