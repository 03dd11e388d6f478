"""XLA's wire format: protobuf message classes built at run time from a table of the fields we read.

Floor: ground.  Only the fields the compiler needs are named; all others survive a round trip as unknown fields.
Enums are declared as integers and maps as repeated entries: the bytes are the same.  Field numbers are those of
XLA's `hlo.proto` and `xla_data.proto`.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_KINDS = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
}

# message -> fields "name number type", a leading * for repeated; a type that is no scalar names a message.
_MESSAGES: dict[str, str] = {
    "TileProto": "*dimensions 1 int64",
    "LayoutProto": "*minor_to_major 1 int64; *tiles 6 TileProto; element_size_in_bits 7 int64; memory_space 8 int64;"
    " tail_padding_alignment_in_elements 16 int64",
    "ShapeProto": "element_type 2 int32; *dimensions 3 int64; *tuple_shapes 4 ShapeProto; layout 5 LayoutProto;"
    " *is_dynamic_dimension 6 bool",
    "ProgramShapeProto": "*parameters 1 ShapeProto; result 2 ShapeProto; *parameter_names 3 string",
    "OpMetadata": "op_type 1 string; op_name 2 string; source_file 3 string; source_line 4 int32;"
    " deduplicated_name 12 string; stack_frame_id 15 int32; scheduling_name 16 string; source_end_line 17 int32;"
    " source_column 18 int32; source_end_column 19 int32",
    "LiteralProto": "shape 1 ShapeProto; *preds 2 bool; s2s 26 bytes; s4s 21 bytes; s8s 15 bytes; u2s 27 bytes;"
    " u4s 22 bytes; u8s 3 bytes; *s32s 4 int32; *s64s 5 int64; *u32s 6 uint32; *u64s 7 uint64; *f32s 8 float;"
    " *f64s 9 double; *c64s 12 float; *c128s 18 double; *tuple_literals 10 LiteralProto; f16s 11 bytes;"
    " bf16s 13 bytes; u16s 16 bytes; s16s 17 bytes; f4e2m1fns 32 bytes; f8e3m4s 29 bytes; f8e4m3b11fnuzs 23 bytes;"
    " f8e4m3fns 20 bytes; f8e4m3fnuzs 25 bytes; f8e4m3s 28 bytes; f8e5m2fnuzs 24 bytes; f8e5m2s 19 bytes;"
    " f8e8m0fnus 33 bytes",
    "WindowDimension": "size 1 int64; stride 2 int64; padding_low 3 int64; padding_high 4 int64;"
    " window_dilation 5 int64; base_dilation 6 int64; window_reversal 7 bool",
    "Window": "*dimensions 1 WindowDimension",
    "PaddingConfigDimension": "edge_padding_low 1 int64; edge_padding_high 2 int64; interior_padding 3 int64",
    "PaddingConfig": "*dimensions 1 PaddingConfigDimension",
    "DotDimensionNumbers": "*lhs_contracting_dimensions 1 int64; *rhs_contracting_dimensions 2 int64;"
    " *lhs_batch_dimensions 3 int64; *rhs_batch_dimensions 4 int64",
    "RaggedDotDimensionNumbers": "dot_dimension_numbers 1 DotDimensionNumbers; *lhs_ragged_dimensions 2 int64;"
    " *rhs_group_dimensions 3 int64",
    "ConvolutionDimensionNumbers": "input_batch_dimension 7 int64; input_feature_dimension 8 int64;"
    " *input_spatial_dimensions 11 int64; kernel_input_feature_dimension 3 int64;"
    " kernel_output_feature_dimension 4 int64; *kernel_spatial_dimensions 6 int64; output_batch_dimension 9 int64;"
    " output_feature_dimension 10 int64; *output_spatial_dimensions 12 int64",
    "GatherDimensionNumbers": "*offset_dims 1 int64; *collapsed_slice_dims 2 int64; *start_index_map 3 int64;"
    " index_vector_dim 4 int64; *operand_batching_dims 5 int64; *start_indices_batching_dims 6 int64",
    "ScatterDimensionNumbers": "*update_window_dims 1 int64; *inserted_window_dims 2 int64;"
    " *scatter_dims_to_operand_dims 3 int64; index_vector_dim 4 int64; *input_batching_dims 5 int64;"
    " *scatter_indices_batching_dims 6 int64",
    "SliceDimensions": "start 1 int64; limit 2 int64; stride 3 int64",
    "ReplicaGroup": "*replica_ids 1 int64",
    "IotaReplicaGroupListProto": "num_replica_groups 1 int64; num_devices_per_group 2 int64;"
    " *iota_reshape_dims 3 int64; *iota_transpose_perm 4 int32",
    "CollectiveDeviceListProto": "*replica_groups 1 ReplicaGroup;"
    " iota_replica_group_list 2 IotaReplicaGroupListProto",
    "MeshAxis": "name 1 string; size 2 int64",
    "IotaTransform": "*reshape_dims 1 int64; *transpose_perm 2 int64",
    "MeshProto": "*axes 1 MeshAxis; *device_ids 2 int64; iota_transform 3 IotaTransform",
    "SubAxis": "pre_size 1 int64; size 2 int64",
    "AxisRefProto": "mesh_axis_index 1 int64; sub_axis_info 2 SubAxis",
    "MeshReplicaGroupListProto": "mesh 1 MeshProto; *axes 2 AxisRefProto",
    "DimensionSharding": "*axes 1 AxisRefProto; is_closed 2 bool",
    "NamedShardingProto": "mesh 2 MeshProto; *dim_shardings 3 DimensionSharding; *replicated_axes 4 AxisRefProto;"
    " *unreduced_axes 5 AxisRefProto; *metadata 6 OpMetadata; *manual_axes 7 AxisRefProto",
    "OpSharding": "type 1 int32; tile_shape 2 ShapeProto; *tile_assignment_dimensions 3 int64;"
    " *tile_assignment_devices 4 int64; *tuple_shardings 5 OpSharding; replicate_on_last_tile_dim 6 bool;"
    " *metadata 7 OpMetadata; *last_tile_dims 8 int32; *iota_reshape_dims 9 int64; *iota_transpose_perm 10 int32;"
    " is_shard_group 11 bool; shard_group_id 12 int64; shard_group_type 13 int32;"
    " named_sharding 14 NamedShardingProto",
    "SourceTarget": "source 1 int64; target 2 int64",
    "PrecisionConfig": "*operand_precision 1 int32; algorithm 2 int32",
    "TriangularSolveOptions": "left_side 1 bool; lower 2 bool; unit_diagonal 3 bool; transpose_a 4 int32",
    "CholeskyOptions": "lower 1 bool",
    "FrontendAttribute": "key 1 string; value 2 string",
    "FrontendAttributes": "*map 1 FrontendAttribute",
    "OutputOperandAliasing": "*output_shape_index 1 int64; operand_index 2 int64; *operand_shape_index 3 int64",
    "ResultAccuracy": "mode 1 int32",
    "HloInstructionProto": "name 1 string; opcode 2 string; shape 3 ShapeProto; metadata 7 OpMetadata;"
    " literal 8 LiteralProto; parameter_number 9 int64; fusion_kind 11 string; tuple_index 13 int64;"
    " *dimensions 14 int64; window 15 Window; convolution_dimension_numbers 16 ConvolutionDimensionNumbers;"
    " *slice_dimensions 17 SliceDimensions; exponent_bits 18 int32; mantissa_bits 19 int32;"
    " *dynamic_slice_sizes 20 int64; padding_config 21 PaddingConfig; distribution 23 int32; epsilon 24 float;"
    " feature_index 25 int64; channel_id 26 int64; custom_call_target 28 string; outfeed_shape 29 ShapeProto;"
    " dot_dimension_numbers 30 DotDimensionNumbers; fft_type 31 int32; *fft_length 32 int64;"
    " gather_dimension_numbers 33 GatherDimensionNumbers; *gather_slice_sizes 34 int64; id 35 int64;"
    " *operand_ids 36 int64; *control_predecessor_ids 37 int64; *called_computation_ids 38 int64;"
    " sharding 40 OpSharding; backend_config 43 bytes; is_host_transfer 47 bool;"
    " scatter_dimension_numbers 48 ScatterDimensionNumbers; *replica_groups 49 ReplicaGroup;"
    " feature_group_count 50 int64; precision_config 51 PrecisionConfig; *source_target_pairs 52 SourceTarget;"
    " constrain_layout 56 bool; *operand_shapes_with_layout 57 ShapeProto; batch_group_count 58 int64;"
    " triangular_solve_options 59 TriangularSolveOptions; is_stable 60 bool; cholesky_options 62 CholeskyOptions;"
    " comparison_direction 63 string; custom_call_has_side_effect 65 bool; delta 66 int64;"
    " indices_are_sorted 67 bool; frontend_attributes 68 FrontendAttributes; unique_indices 69 bool;"
    " rng_algorithm 70 int32; use_global_device_ids 71 bool; comparison_type 72 string;"
    " *output_operand_aliasing 74 OutputOperandAliasing; custom_call_schedule 76 int32;"
    " custom_call_api_version 77 int32;"
    " async_execution_thread 79 string; k 81 int64; largest 85 bool;"
    " collective_device_list 87 CollectiveDeviceListProto;"
    " ragged_dot_dimension_numbers 90 RaggedDotDimensionNumbers; iota_replica_groups 92 IotaReplicaGroupListProto;"
    " result_accuracy 91 ResultAccuracy;"
    " mesh_replica_groups 93 MeshReplicaGroupListProto; is_reverse 94 bool; num_carries 95 int64;"
    " comparison_order 102 string",
    "HloComputationProto": "name 1 string; *instructions 2 HloInstructionProto; program_shape 4 ProgramShapeProto;"
    " id 5 int64; root_id 6 int64; execution_thread 8 string",
    "AliasEntryProto": "*output_shape_index 1 int64; parameter_number 2 int64; *parameter_shape_index 3 int64;"
    " kind 4 int32",
    "HloInputOutputAliasProto": "*entries 1 AliasEntryProto",
    "BufferDonorEntryProto": "parameter_number 1 int64; *parameter_shape_index 2 int64",
    "HloBufferDonorProto": "*entries 1 BufferDonorEntryProto",
    "InstructionSequence": "*instruction_ids 1 int64",
    "ScheduleEntry": "key 1 int64; value 2 InstructionSequence",
    "HloScheduleProto": "*sequences 1 ScheduleEntry",
    "FileLocation": "file_name_id 1 int32; function_name_id 2 int32; line 3 int32; column 4 int32; end_line 5 int32;"
    " end_column 6 int32",
    "StackFrame": "file_location_id 1 int32; parent_frame_id 2 int32",
    "StackFrameIndexProto": "*file_names 1 string; *function_names 2 string; *file_locations 3 FileLocation;"
    " *stack_frames 4 StackFrame",
    "HloModuleProto": "name 1 string; entry_computation_name 2 string; *computations 3 HloComputationProto;"
    " host_program_shape 4 ProgramShapeProto; id 5 int64; entry_computation_id 6 int64;"
    " schedule 7 HloScheduleProto; input_output_alias 8 HloInputOutputAliasProto; is_dynamic 11 bool;"
    " spmd_output_sharding 12 OpSharding;"
    " *spmd_parameters_shardings 14 OpSharding; stack_frame_index 17 StackFrameIndexProto;"
    " buffer_donor 18 HloBufferDonorProto; frontend_attributes 19 FrontendAttributes",
}  # fmt: skip


def _field(entry: str, message: descriptor_pb2.DescriptorProto) -> None:
    name, number, kind = entry.split()
    field = message.field.add(name=name.lstrip("*"), number=int(number), label=3 if name.startswith("*") else 1)
    if kind in _KINDS:
        field.type = _KINDS[kind]  # pyright: ignore[reportAttributeAccessIssue]  (the stub wants the enum class)
    else:
        field.type, field.type_name = 11, f".hlosharding.{kind}"  # pyright: ignore[reportAttributeAccessIssue]


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="hlosharding/xla.proto", package="hlosharding", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for entry in fields.split(";"):
            _field(entry, message)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"hlosharding.{n}")) for n in _MESSAGES}


_BUILT = _classes()
OpSharding: Any = _BUILT["OpSharding"]
OpMetadata: Any = _BUILT["OpMetadata"]
ShapeProto: Any = _BUILT["ShapeProto"]
LiteralProto: Any = _BUILT["LiteralProto"]
HloInstructionProto: Any = _BUILT["HloInstructionProto"]
HloComputationProto: Any = _BUILT["HloComputationProto"]
HloModuleProto: Any = _BUILT["HloModuleProto"]
