package sqlstore

import (
	"context"
	"fmt"
	"slices"

	"gorm.io/gorm"
)

// statistics are the table statistics for SQLite's planner, in the form of its
// sqlite_stat1: the table's row count, then for each prefix of the index's columns
// how many rows share the same values. Without any, it assumes that each first
// column selects ten rows, and so reads all ranges of a tenant to find a hundred of
// them, or all running tasks to find one.
//
// The numbers are those of a service in use, not of the current file: a statement's
// plan must not depend on the day of the measurement. A tenant has many rows, a
// document few; queries ask only for states that few tasks are in. Tables that are
// empty on most days count as on the day of a large job: 91,000 documents of a
// canceled one were folded 270 a second, for each batch reading the whole table.
var statistics = []struct{ table, index, stat string }{
	{"tenants", "sqlite_autoindex_tenants_1", "20 1"},
	{"api_keys", "sqlite_autoindex_api_keys_1", "100 1"},
	{"api_keys", "sqlite_autoindex_api_keys_2", "100 1"},
	{"api_keys", "k_key_tenant", "100 5 1"},
	{"secret_keys", "sqlite_autoindex_secret_keys_1", "5 1"},
	{"datasets", "sqlite_autoindex_datasets_1", "100 1"},
	{"datasets", "sqlite_autoindex_datasets_2", "100 5 1"},
	{"jobs", "sqlite_autoindex_jobs_1", "10000 1"},
	{"jobs", "k_job", "10000 500 100 1"},
	{"jobs", "k_job_list", "10000 500 1"},
	{"jobs", "k_job_open", "10 1"},
	{"documents", "sqlite_autoindex_documents_1", "100000 1"},
	{"documents", "k_doc_list", "100000 5000 1000 990 1"},
	{"documents", "k_doc_tenant", "100000 5000 1"},
	{"documents", "k_doc_quota", "100000 5000 4950 2"},
	{"documents", "k_doc_sha", "100000 5000 1000 1"},
	{"documents", "k_doc_state", "100000 10000 1"},
	{"documents", "k_doc_parent", "100000 20 1"},
	{"documents", "k_doc_root", "100000 20 20"},
	{"generations", "sqlite_autoindex_generations_1", "200000 2 1"},
	{"generations", "k_gen_job", "200000 20 1"},
	{"tasks", "sqlite_autoindex_tasks_1", "2000000 1"},
	{"tasks", "sqlite_autoindex_tasks_2", "2000000 20 10 8 8 1 1"},
	{"tasks", "k_feed", "2000000 10000 9000 500 200 100 20 1"},
	{"tasks", "k_when", "2000000 10000 10 2"},
	{"tasks", "k_fold", "2000000 20 10 9 3 3 3"},
	{"tasks", "k_job_tasks", "2000000 200 50"},
	{"tasks", "k_range", "2000000 1"},
	{"tasks", "k_reuse", "2000000 100000 2"},
	{"task_deps", "sqlite_autoindex_task_deps_1", "2000000 20 1"},
	{"task_deps", "k_parent", "2000000 1 1"},
	{"events", "sqlite_autoindex_events_1", "10000000 5 4 1 1"},
	{"events", "k_ev_doc", "10000000 100 1"},
	{"events", "k_ev_job", "10000000 1000 1"},
	{"events", "k_ev_tenant", "10000000 500000 1"},
	{"doc_dirty", "sqlite_autoindex_doc_dirty_1", "100000 1"},
	{"garbage", "k_garbage", "100000 10 1"},
	{"garbage", "k_garbage_receipt", "100000 8"},
	{"garbage", "k_garbage_doc", "100000 5"},
	{"receipts", "sqlite_autoindex_receipts_1", "10000 1"},
	{"receipts", "k_receipt_tenant", "10000 500 1"},
	{"receipts", "k_receipt_dataset", "10000 500 100 1"},
	{"receipts", "k_receipt_due", "10000 100 1"},
	{"receipt_documents", "sqlite_autoindex_receipt_documents_1", "100000 10 1"},
	{"receipt_documents", "k_receipt_pass", "100000 10 10 1"},
	{"workers", "sqlite_autoindex_workers_1", "100 1"},
	{"index_state", "sqlite_autoindex_index_state_1", "2 1"},
	{"queue_meta", "sqlite_autoindex_queue_meta_1", "10 1"},
	{"leases", "sqlite_autoindex_leases_1", "10 1"},
	{"stats_minutes", "sqlite_autoindex_stats_minutes_1", "500000 5000 1"},
	{"stats_minutes", "k_stats_minute", "500000 20"},
	{"idempotency", "sqlite_autoindex_idempotency_1", "10000 500 1"},
	{"uploads", "sqlite_autoindex_uploads_1", "1000 1"},
	{"uploads", "k_upload_life", "1000 10"},
	{"uploads", "k_upload_job", "1000 200 2"},
	{"uploads", "k_upload_list", "1000 200 50 2 1"},
	{"flows", "sqlite_autoindex_flows_1", "100 5 2 1"},
	{"saved_queries", "sqlite_autoindex_saved_queries_1", "10000 100 1"},
	{"evaluations", "sqlite_autoindex_evaluations_1", "10000 100 1"},
	{"graph_splits", "sqlite_autoindex_graph_splits_1", "1000 20 1"},
	{"dataset_runs", "sqlite_autoindex_dataset_runs_1", "1000 20 10 1"},
	{"dataset_runs", "sqlite_autoindex_dataset_runs_2", "1000 1"},
	{"dataset_run_documents", "sqlite_autoindex_dataset_run_documents_1", "1000000 1000 1"},
	{"run_items", "sqlite_autoindex_run_items_1", "100000 50000 1 1"},
	{"run_items", "k_run_items_doc", "100000 10"},
	{"run_results", "sqlite_autoindex_run_results_1", "100000 1"},
	{"run_results", "k_run_results_dataset", "100000 1000 500 1"},
	{"run_results", "k_run_results_doc", "100000 10"},
	{"run_result_sources", "sqlite_autoindex_run_result_sources_1", "200000 2 1"},
	{"run_result_sources", "k_run_result_sources_doc", "200000 10 1"},
	{"model_spending", "sqlite_autoindex_model_spending_1", "10000 100 1"},
	{"model_spending", "k_spending_at", "10000 2"},
	{"chunk_edits", "sqlite_autoindex_chunk_edits_1", "10000 20 1"},
	{"chunk_edits", "k_edit_range", "10000 1"},
	{"chunk_edits", "k_edit_base", "10000 5 5"},
	{"chunk_edit_versions", "sqlite_autoindex_chunk_edit_versions_1", "20000 40 2 1"},
	{"webhooks", "sqlite_autoindex_webhooks_1", "100 1"},
	{"webhooks", "k_webhook_dataset", "100 2 1"},
	{"webhooks", "k_webhook_due", "100 50 10"},
	{"webhook_deliveries", "sqlite_autoindex_webhook_deliveries_1", "100000 1000 1"},
	{"webhook_deliveries", "k_delivery_due", "100000 1000 500 2 1"},
	{"webhook_deliveries", "k_delivery_list", "100000 1000 1"},
}

// fixStatistics writes the statistics if the file has others.
func (s *handle) fixStatistics(ctx context.Context) error {
	return s.tx(ctx, func(tx *gorm.DB) error {
		var made int
		if err := scan(tx.Raw("SELECT COUNT(*) FROM sqlite_schema WHERE name='sqlite_stat1'"), &made); err != nil {
			return err
		}
		if made == 0 { // by the only statement that can create it, on a table of a few rows
			if err := tx.Exec("ANALYZE leases").Error; err != nil {
				return err
			}
		}
		type row struct{ Tbl, Idx, Stat string }
		var have, want []row
		for _, x := range statistics {
			want = append(want, row{x.table, x.index, x.stat})
		}
		if err := scan(tx.Raw("SELECT tbl, COALESCE(idx,'') AS idx, stat FROM sqlite_stat1 ORDER BY rowid"), &have); err != nil {
			return err
		}
		if slices.Equal(have, want) {
			return nil
		}
		if err := tx.Exec("DELETE FROM sqlite_stat1").Error; err != nil {
			return err
		}
		for _, r := range want {
			if err := tx.Exec("INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES (?, ?, ?)", r.Tbl, r.Idx, r.Stat).Error; err != nil {
				return fmt.Errorf("statistics of %s: %w", r.Idx, err)
			}
		}
		return tx.Exec("ANALYZE sqlite_schema").Error // makes SQLite read them again
	})
}
